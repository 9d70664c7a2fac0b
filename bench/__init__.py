"""The benchmark: ours beside bare floors and beside peers, as ratios measured in one run."""
