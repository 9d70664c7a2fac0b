"""The SQL of features: what a query must be, and the sources that it may read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from glob import glob
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from headwater.core.masking import mask_address
from headwater.errors import DeclarationError, InvalidInputError

TEXTS_AND_PARQUET = (".parquet", ".csv", ".json", ".ndjson", ".jsonl")
KINDS = (*TEXTS_AND_PARQUET, ".duckdb", ".sqlite", ".sqlite3", ".db")
POSTGRES, SNOWFLAKE, BIGQUERY = "postgres", "snowflake", "bigquery"
_SCHEMES = {POSTGRES: POSTGRES, "postgresql": POSTGRES, SNOWFLAKE: SNOWFLAKE, BIGQUERY: BIGQUERY}
_FILE_SCHEMES = ("s3", "https", "http")
_SECRETS = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token")
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
    """Return what a source is: the suffix of its files, or the kind of server that its URL names.

    A file may be on a web server or in S3.
    """
    scheme, path = scheme_of(location), location
    if scheme in _SCHEMES:
        return _SCHEMES[scheme]
    if scheme in _FILE_SCHEMES:
        path, _, options = location.partition("?")
        if secret := next((word for word in _SECRETS if word in options.lower()), None):
            raise InvalidInputError(
                f"source {name!r} has the option {secret} in its URL; set the variables "
                "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN instead"
            )
    elif scheme:
        raise InvalidInputError(
            f"source {name!r} has a URL that begins with '{scheme}://'; use one of "
            f"{', '.join(f'{known}://' for known in (*_SCHEMES, *_FILE_SCHEMES))}, or a file"
        )
    suffixes = [s.lower() for s in Path(path).suffixes if s.lower() not in _COMPRESSED]
    kind = suffixes[-1] if suffixes else ""
    supported = TEXTS_AND_PARQUET if scheme else KINDS
    if kind not in supported:
        raise InvalidInputError(
            f"source {name!r} has the suffix {kind!r}, which is not that of a supported file; "
            f"use one of {', '.join(supported)}"
        )
    return kind


def scheme_of(location: str) -> str:
    """Return the scheme of a URL in small letters; empty for a path."""
    return location.partition("://")[0].lower() if "://" in location else ""


def has_files(location: str) -> bool:
    """Return whether a path or a pattern names a file; that of a URL is not looked for."""
    return bool(scheme_of(location)) or Path(location).exists() or bool(glob(location))


def shown(location: str) -> str:
    """Return a location without its secrets."""
    return mask_address(location) if scheme_of(location) else location


def without_secrets(message: str, locations: Iterable[str]) -> str:
    """Return a message in which each location is without its secrets."""
    for location in locations:
        message = message.replace(location, shown(location))
    return message


def table_of(name: str, location: str) -> str:
    """Return the table that a source names with ``?table=``, or else its own name."""
    pairs = parse_qsl(urlsplit(location).query)
    return next((value for option, value in pairs if option == "table"), name)


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
