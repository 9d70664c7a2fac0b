"""The cases of the test vectors: valid records, and records broken in one way each."""
