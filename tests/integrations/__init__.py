"""Tests of the retrievers for other frameworks, with the real packages."""
