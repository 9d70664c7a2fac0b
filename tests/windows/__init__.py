"""Tests of windows: their state, exact sums and sketches."""
