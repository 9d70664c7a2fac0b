"""The benchmark: Headwater, bare floors and peers, as ratios measured in one run."""
