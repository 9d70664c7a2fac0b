"""Proof of evaluations: a world that is lived again with every edit of its features file."""
