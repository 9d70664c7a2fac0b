"""Backfills of a store, from their beginning until workers keep the new version fresh."""
