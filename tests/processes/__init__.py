"""Several processes share a store, and any of them may be killed."""
