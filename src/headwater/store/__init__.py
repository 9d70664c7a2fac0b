"""FeatureStore, its blocking form, and the loader of features files."""
