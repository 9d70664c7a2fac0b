"""Random programs that cross the capabilities of a store."""
