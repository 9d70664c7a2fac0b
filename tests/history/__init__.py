"""Tests of history: point-in-time reads, backfill, retention."""
