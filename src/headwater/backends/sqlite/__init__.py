"""The embedded environment's present: events, online values, leases and dead letters in SQLite."""
