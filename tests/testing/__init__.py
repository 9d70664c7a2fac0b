"""Tests of headwater.testing."""
