"""Parts of error messages about names: source locations and "did you mean" hints."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple


class Location(NamedTuple):
    """The file and line of a declaration."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def closest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to the name, or None if none is similar."""
    return next(iter(get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)), None)


def nearest(name: str, candidates: Iterable[str], more: str = "") -> str:
    """Return a hint for an unknown name: the most similar candidate, or a list of them.

    ``more`` is a sentence that follows the hint.
    """
    known = sorted(candidates)
    close = closest(name, known)
    if close is not None:
        return f"did you mean {close!r}?" + (f" {more}" if more else "")
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    hint = f"choose one of {shown}" if known else "none is declared"
    return hint + (f". {more}" if more else "")
