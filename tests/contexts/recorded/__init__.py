"""Recorded contexts: found, proved, explained, replayed, compared and redacted."""
