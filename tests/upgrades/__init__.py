"""Stores that earlier releases wrote, and this one opens."""
