"""The Postgres backends on a real server."""
