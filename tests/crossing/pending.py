"""Faults that are not mended yet; programs leave out what would show them."""

PENDING = frozenset({"types"})
