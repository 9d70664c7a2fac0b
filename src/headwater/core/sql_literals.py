"""Texts as literals of SQL."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def text(value: str | Path) -> str:
    """Return a text as an SQL literal."""
    return "'" + str(value).replace("'", "''") + "'"


def texts(values: Sequence[str]) -> str:
    """Return texts as SQL literals, separated by commas."""
    return ", ".join(map(text, values))
