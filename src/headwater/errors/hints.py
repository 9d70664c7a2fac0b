"""Parts of error messages about names: source locations and "did you mean" hints."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

# As long as a declared name may be: a longer one is similar to none, and comparing takes long.
_LONGEST_NAME = 256
_LONGEST_QUOTED = 100


class Location(NamedTuple):
    """The file and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def shortened(text: str, longest: int = _LONGEST_NAME) -> str:
    """Return a text of a caller for a message or a log: the start of a long one."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def quoted(text: object) -> str:
    """Return a value of a caller in quotes, shortened."""
    return repr(shortened(text, _LONGEST_QUOTED) if isinstance(text, str) else text)


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to the name, or None if none is similar."""
    if len(name) > _LONGEST_NAME:
        return None
    return next(iter(get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)), None)


def nearest(name: str, candidates: Iterable[str], more: str = "") -> str:
    """Return a hint for an unknown name: the most similar candidate, or a list of them.

    ``more`` is a sentence that follows the hint.
    """
    names = sorted(candidates)
    close = closest(name, names)
    if close is not None:
        return f"did you mean {close!r}?" + (f" {more}" if more else "")
    shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
    hint = f"choose one of {shown}" if names else "none is declared"
    return hint + (f". {more}" if more else "")
