"""Windows of time: what they cover, the state that is kept for them, and their values. Pure."""
