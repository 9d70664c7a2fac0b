"""What may be declared, and how what may not is refused."""
