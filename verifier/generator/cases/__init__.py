"""What the test vectors are about: records that hold, and records broken in one way each."""
