"""Wrapping the methods of an object, to measure or trace its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any


def wrap_method(part: object, method: str, outer: Callable[..., Awaitable[Any]]) -> None:
    """Replace a method of one object; the new one gets the old one as its first argument."""
    setattr(part, method, partial(outer, getattr(part, method)))
