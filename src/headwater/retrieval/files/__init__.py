"""Readers of documents in files, for bulk loads."""
