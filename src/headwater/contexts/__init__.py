"""Contexts: assembly under a token budget, freshness, and the record of each."""
