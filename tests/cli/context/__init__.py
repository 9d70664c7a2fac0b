"""Tests of `headwater context`."""
