"""One-line forms of results, for prompts and logs."""

from __future__ import annotations

import re
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

NON_JOINER = "\u200c"
JOINERS = f"{NON_JOINER}\u200d"
VIRAMAS = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d4d\u0dca"
"""The signs of Indic scripts after which a joiner chooses between two forms."""
ARABIC = "\u0620-\u065f\u066e-\u06d3\u06d5-\u06dc\u06de-\u06ef\u06fa-\u06ff\u0750-\u077f"
"""The letters and marks of the Arabic script, which a non-joiner separates inside a word."""
_SPELLED_JOINERS = re.compile(
    f"(?<=[{VIRAMAS}])[{JOINERS}]|(?<=[{ARABIC}]){NON_JOINER}(?=[{ARABIC}])"
)


def is_printable(text: str) -> bool:
    """Return whether all characters can be printed, and joiners are where a spelling has them.

    Elsewhere a joiner cannot be seen, and texts with and without it would look the same.
    """
    return text.isprintable() or _SPELLED_JOINERS.sub("", text).isprintable()


def printable(text: str) -> str:
    """Escape the characters that could move a terminal's cursor or look like another line."""
    return _escaped(text, "")


def printable_lines(text: str) -> str:
    """Escape the characters that could move a terminal's cursor, except line ends and tabs."""
    return _escaped(text, "\n\t")


def _escaped(text: str, kept: str) -> str:
    if is_printable(text):
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
