"""Embedders: models, providers and functions that turn texts into vectors."""
