"""Tests of the shared types."""
