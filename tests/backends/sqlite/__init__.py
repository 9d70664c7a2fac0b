"""The embedded store in SQLite."""
