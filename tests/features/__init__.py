"""Feature values: read, computed, refreshed, reconciled."""
