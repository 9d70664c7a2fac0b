"""The peer for online reads, Feast, measured in a separate environment."""
