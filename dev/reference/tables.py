"""Markdown tables, and texts of the code in Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

NONE = "–"


class IncompleteReferenceError(Exception):
    """A part of the code without a place or a text in the reference, or the reverse."""


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield _line(head)
    yield "|" + "---|" * len(head)
    for row in rows:
        yield _line([cell.replace("|", "\\|") for cell in row])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def code(*names: str) -> str:
    """Return names as code, separated by commas, or a dash if there are none."""
    return ", ".join(f"`{name}`" for name in names) or NONE


def prose(docstring: str) -> str:
    """Return a docstring as one line of Markdown."""
    return " ".join(docstring.split()).replace("``", "`")


def anchor(heading: str) -> str:
    """Return the link to a heading of the same page."""
    return "#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
