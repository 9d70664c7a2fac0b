"""Retrieval: indexes of documents, chunking, embeddings, search, and the cache of retrievers."""
