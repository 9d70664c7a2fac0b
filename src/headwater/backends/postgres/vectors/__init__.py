"""Indexes of documents in Postgres with pgvector."""
