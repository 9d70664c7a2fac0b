"""Servers and buckets that a DuckDB session reads: their extensions, addresses and streams."""

from __future__ import annotations

from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import duckdb

from headwater.core.duckdb_session import Session, identifier
from headwater.core.masking import mask_address
from headwater.core.sql_literals import text
from headwater.errors import InvalidInputError, MissingExtraError

# Seconds that a server may take to accept a connection, unless its URL says otherwise.
_CONNECT_TIMEOUT = "10"
_EXTRA = "sources"


def load_extension(session: Session, name: str) -> None:
    """Load an extension of DuckDB from its package, or the one that was installed by DuckDB.

    Nothing is downloaded. DuckDB checks the signature of the file.
    """
    package = find_spec(f"duckdb_extension_{name}")
    for folder in () if package is None else package.submodule_search_locations or ():
        file = Path(folder, "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        if file.exists():
            session.run(f"LOAD {text(file)}")
            return
    try:
        session.run(f"LOAD {name}")
    except duckdb.Error as error:
        raise MissingExtraError(f"DuckDB's extension {name}", _EXTRA) from error


def attach_postgres(session: Session, url: str) -> str:
    """Attach the database of a URL, which can only be read; return its name in the session.

    The password is a secret of the session, which no query and no error shows.
    """
    load_extension(session, "postgres_scanner")
    keywords, password = _keywords(url)
    name = f"postgres {sha256(url.encode()).hexdigest()[:16]}"
    secret = identifier(f"password of {name}")
    session.run(f"CREATE SECRET IF NOT EXISTS {secret} (TYPE postgres, PASSWORD {text(password)})")
    try:
        session.run(
            f"ATTACH IF NOT EXISTS {text(keywords)} AS {identifier(name)}"
            f" (TYPE postgres, READ_ONLY, SECRET {secret})"
        )
    except duckdb.Error as error:
        problem = str(error).replace(keywords, mask_address(keywords))
        raise duckdb.OperationalError(problem) from None
    return name


def _keywords(url: str) -> tuple[str, str]:
    """Return the keywords of libpq for a URL, and the password; ``table`` is an option of ours."""
    try:
        parts = urlsplit(url)
        credentials, _, places = parts.netloc.rpartition("@")
        user, _, password = credentials.partition(":")
        hosts = [
            place.rpartition(":") if _has_port(place) else (place, "", "")
            for place in places.split(",")
        ]
        options = dict(parse_qsl(parts.query))
    except ValueError as error:
        raise InvalidInputError(f"{mask_address(url)} is not a valid URL: {error}") from error
    options.pop("table", None)
    password = options.pop("password", unquote(password))
    given = {
        "host": ",".join(unquote(host).strip("[]") for host, _, _ in hosts),
        "port": ",".join(port for _, _, port in hosts),
        "user": unquote(user),
        "dbname": unquote(parts.path.lstrip("/")),
        "connect_timeout": _CONNECT_TIMEOUT,
        "application_name": "headwater",
    } | options
    quoted = (
        "{}='{}'".format(name, value.replace("\\", "\\\\").replace("'", "\\'"))
        for name, value in given.items()
        if value.strip(",")
    )
    return " ".join(quoted), password


def _has_port(place: str) -> bool:
    return place.rpartition("]")[2].partition(":")[2].isdecimal()
