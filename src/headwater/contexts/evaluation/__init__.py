"""Evaluations: recorded contexts, assembled again with other code on what was known then."""
