"""The benchmark: ours beside bare floors and beside Fabra, as ratios measured in one run."""
