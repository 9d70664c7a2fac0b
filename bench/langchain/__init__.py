"""The peer for searches, LangChain, measured in a separate environment."""
