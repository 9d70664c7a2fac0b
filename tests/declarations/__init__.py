"""Valid declarations, and the errors of invalid ones."""
