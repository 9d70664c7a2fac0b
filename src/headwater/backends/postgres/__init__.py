"""The production environment's past: history and events in Postgres."""
