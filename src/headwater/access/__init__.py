"""Who may do what: API keys, their scopes and rate limits."""
