"""Tests of one module at a time, with nothing running."""
