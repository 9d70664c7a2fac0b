"""The engine on real Redis and Postgres servers."""
