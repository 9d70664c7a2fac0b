"""Tests of the error tree."""
