"""The conformance suites over every backend there is."""
