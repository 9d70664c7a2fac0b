"""Backfill: stored events replayed through a feature's present handler into a new series."""
