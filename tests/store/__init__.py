"""Tests of the store and its loader."""
