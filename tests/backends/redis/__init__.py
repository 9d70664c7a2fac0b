"""Redis and Postgres as the engine meets them in real life."""
