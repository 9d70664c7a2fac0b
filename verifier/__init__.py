"""The verifier is JavaScript; what is Python here makes its test vectors."""
