"""The peer for online reads, Feast, measured in an environment of its own."""
