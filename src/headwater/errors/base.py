"""The base of all errors."""

from __future__ import annotations


class HeadwaterError(Exception):
    """The base class of all Headwater errors."""
