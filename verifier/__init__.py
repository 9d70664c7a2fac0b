"""The verifier is written in JavaScript; the Python code generates its test vectors."""
