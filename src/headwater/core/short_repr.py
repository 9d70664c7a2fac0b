"""One-line forms of results, for prompts and logs."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from datetime import datetime


class _Short(reprlib.Repr):
    """Cuts long values, and writes times as ISO 8601."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 80

    def repr_datetime(self, at: datetime, _level: int) -> str:
        return at.isoformat(timespec="seconds")


_SHORT = _Short()


def printable(text: str) -> str:
    """Escape the characters that could move a terminal's cursor or look like another line."""
    return _escaped(text, "")


def printable_lines(text: str) -> str:
    """Escape the characters that could move a terminal's cursor, except line ends and tabs."""
    return _escaped(text, "\n\t")


def _escaped(text: str, kept: str) -> str:
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c in kept else c.encode("unicode_escape").decode() for c in text
    )


def short_repr(*fields: str) -> Callable[[object], str]:
    """Return a ``__repr__`` that shows these fields in one line."""

    def shown(self: object) -> str:
        parts = (f"{field}={_SHORT.repr(getattr(self, field))}" for field in fields)
        return f"<{type(self).__name__} {' '.join(parts)}>"

    return shown
