"""FeatureStore, its blocking form, and the loader of a features file."""
