"""What the HTTP API promises to those who call it."""
