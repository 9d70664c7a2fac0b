"""Readers of documents in files."""
