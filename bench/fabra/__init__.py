"""The nearest peer, Fabra, measured in an environment of its own."""
