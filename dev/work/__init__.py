"""Counts of work: what one operation makes the process do."""
