"""Fault injection for the production engine: count lost, doubled and reordered events."""
