"""Reading, computing and refreshing feature values."""
