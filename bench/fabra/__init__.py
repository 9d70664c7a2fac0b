"""The nearest peer, Fabra, measured in a separate environment."""
