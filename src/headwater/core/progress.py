"""The progress of long actions."""

from __future__ import annotations

from collections.abc import Callable

OnStep = Callable[[int, int], None]
"""Called with the number of parts that are done and the number of all."""
