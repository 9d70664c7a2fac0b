"""Settings: their schema, and loading them from the environment and headwater.toml."""
