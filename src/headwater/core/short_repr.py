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


def short_repr(*fields: str) -> Callable[[object], str]:
    """Return a ``__repr__`` that shows these fields in one line."""

    def shown(self: object) -> str:
        parts = (f"{field}={_SHORT.repr(getattr(self, field))}" for field in fields)
        return f"<{type(self).__name__} {' '.join(parts)}>"

    return shown
