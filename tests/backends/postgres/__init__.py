"""The production past, on a real Postgres."""
