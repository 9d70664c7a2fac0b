"""Backends: each folder or module implements ports for one engine and knows no other."""
