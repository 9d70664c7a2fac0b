"""The shipped example: the features and the orders of a small shop."""
