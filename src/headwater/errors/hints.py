"""Names that people write: where one was declared, and which one a wrong one may have meant."""

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
    """The known name that comes nearest to a wrong one, if any comes near."""
    return next(iter(get_close_matches(name, sorted(candidates), n=1, cutoff=0.6)), None)


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Says which known name comes nearest to a wrong one, or which names there are."""
    known = sorted(candidates)
    close = closest(name, known)
    if close is not None:
        return f"did you mean {close!r}?"
    shown = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
    return f"there is {shown}" if known else "none is declared"
