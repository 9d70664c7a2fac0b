"""Makes the test vectors of CRS-001: python -m verifier.generator"""
