"""The SQL of features: what a query must be, and the files that it may read."""

from __future__ import annotations

import re
from collections.abc import Iterable
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
