"""Indexes of documents: rows in SQLite, and vectors in memory-mapped blocks."""
