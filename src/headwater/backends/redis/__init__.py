"""Production's present: events, online values, leases and dead letters in Redis or Valkey."""
