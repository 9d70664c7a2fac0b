"""The SQL of features: what a query must be, and the files that it may read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from headwater.errors import DeclarationError, InvalidInputError

KINDS = (".parquet", ".csv", ".json", ".ndjson", ".jsonl", ".duckdb", ".sqlite", ".sqlite3", ".db")
NO_ROWS = "the query returns no rows; make it one SELECT"
HAS_PARAMETERS = "the query has parameters, which are not supported; write values instead"
SEVERAL_STATEMENTS = (
    "the query has several statements; make it one SELECT, with WITH for intermediate results"
)
FEATURE_NAMES = "feature_names"
"""The built-in view of what features were over time."""
_COMPRESSED = (".gz", ".zst")
# What may contain a semicolon that ends no statement, then one that does, then all else but space.
_PARTS = re.compile(
    r"""
    \b[eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*' | "(?:[^"]|"")*" | (\$\w*\$).*?\1
    | (?P<comment> --[^\n]* | /\*.*?\*/ )
    | (?P<end> ; )
    | \S
    """,
    re.DOTALL | re.VERBOSE,
)


def check_name(name: str) -> None:
    """Raise DeclarationError if a query could not use this name for a source."""
    if not name.isidentifier():
        raise DeclarationError(f"source name {name!r} is not a plain identifier")
    if name in ("events", "feature_history", FEATURE_NAMES):
        raise DeclarationError(f"source {name!r} is built in and cannot be replaced")


def kind_of(name: str, location: str) -> str:
    """Return the file type of a source, by its suffix."""
    suffixes = [s.lower() for s in Path(location).suffixes if s.lower() not in _COMPRESSED]
    kind = suffixes[-1] if suffixes else ""
    if kind not in KINDS:
        raise InvalidInputError(
            f"source {name!r} has the suffix {kind!r}, which is not that of a supported file; "
            f"use one of {', '.join(KINDS)}"
        )
    return kind


def mentioned(sql: str, sources: Iterable[str]) -> list[str]:
    """Return the sources that a query mentions by name."""
    words = set(re.findall(r"\w+", sql.lower()))
    return [source for source in sources if source.lower() in words]


def has_several_statements(sql: str) -> bool:
    """Return whether something follows the end of a statement."""
    has_ended = False
    for part in _PARTS.finditer(sql):
        if part["end"]:
            has_ended = True
        elif has_ended and not part["comment"]:
            return True
    return False


def place_of(name: str, columns: Sequence[str]) -> int | None:
    """Return the place of a column that a query returns, or None if there is none.

    Postgres changes names without quotes to small letters and DuckDB does not, so another name that
    differs in case alone will do.
    """
    if name in columns:
        return columns.index(name)
    places = [n for n, other in enumerate(columns) if other.casefold() == name.casefold()]
    return places[0] if len(places) == 1 else None
