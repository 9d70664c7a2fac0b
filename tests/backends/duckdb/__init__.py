"""History in tail and segments."""
