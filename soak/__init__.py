"""Soak: a server under constant load for a long time, with its memory watched."""
