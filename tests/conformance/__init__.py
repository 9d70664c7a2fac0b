"""The conformance suites for every backend."""
