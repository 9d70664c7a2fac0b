"""The files that SQL features read: what one may be called, and which kinds there are (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from headwater.errors import DeclarationError, InvalidInputError

KINDS = (
    ".parquet",
    ".csv",
    ".json",
    ".ndjson",
    ".jsonl",
    ".duckdb",
    ".sqlite",
    ".sqlite3",
    ".db",
)
_COMPRESSED = (".gz", ".zst")


def check_name(name: str) -> None:
    """Refuses a name that no query could use, or that means something else in one."""
    if not name.isidentifier():
        raise DeclarationError(f"source name {name!r} is not a plain identifier")
    if name in ("events", "feature_history"):
        raise DeclarationError(f"source {name!r} is always there and cannot be replaced")


def kind_of(name: str, location: str) -> str:
    """The kind of file that a source is, by the end of its name."""
    suffixes = [s.lower() for s in Path(location).suffixes if s.lower() not in _COMPRESSED]
    kind = suffixes[-1] if suffixes else ""
    if kind not in KINDS:
        raise InvalidInputError(
            f"source {name!r} is {location!r}, which is no kind of file that can be read; "
            f"use one of {', '.join(KINDS)}"
        )
    return kind


def mentioned(sql: str, sources: Iterable[str]) -> list[str]:
    """The declared sources whose names a query mentions."""
    words = set(re.findall(r"\w+", sql.lower()))
    return [source for source in sources if source.lower() in words]
