"""The demonstration: the features and orders of a small shop, and the command that runs it."""

from headwater.cli.demo.command import app

__all__ = ["app"]
