"""Servers and buckets that a DuckDB session reads: their extensions, addresses and streams."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import duckdb

from headwater.core.duckdb_session import Session, glob_literal, identifier
from headwater.core.masking import mask, mask_address
from headwater.core.sql_literals import text
from headwater.core.sql_sources import BIGQUERY, SNOWFLAKE
from headwater.errors import InvalidInputError, MissingExtraError

# Seconds that a server may take to accept a connection, unless its URL says otherwise.
_CONNECT_TIMEOUT = "10"
_EXTRA = "sources"


def load_extension(session: Session, name: str, extra: str = _EXTRA) -> None:
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
        raise MissingExtraError(f"DuckDB's extension {name}", extra) from error


def attach_postgres(session: Session, url: str) -> str:
    """Attach the database of a URL, which can only be read; return its name in the session.

    The password is a secret of the session, which no query and no error shows.
    """
    load_extension(session, "postgres_scanner")
    keywords, password = _keywords(url)
    name = f"postgres {sha256(url.encode()).hexdigest()[:16]}"
    secret = identifier(f"password of {name}")
    given = f", PASSWORD {text(password)}" if password else ""  # else libpq looks for one
    session.run(f"CREATE SECRET IF NOT EXISTS {secret} (TYPE postgres{given})")
    try:
        session.run(
            f"ATTACH IF NOT EXISTS {text(keywords)} AS {identifier(name)}"
            f" (TYPE postgres, READ_ONLY, SECRET {secret})"
        )
    except duckdb.Error as error:
        problem = str(error).replace(keywords, mask_address(keywords))
        raise duckdb.OperationalError(problem) from None
    return name


class Driver(NamedTuple):
    """An ADBC driver: its module, its extra, and the arguments of its connections for a URL."""

    module: str
    extra: str
    arguments: Callable[[str], Mapping[str, Any]]


def stream(session: Session, sql: str, url: str) -> str:
    """Write the rows of a query to a Parquet file as they arrive; return its SQL expression."""
    kind = url.partition("://")[0].lower()
    driver = DRIVERS[kind]
    try:
        dbapi, errors = import_module(driver.module), import_module("adbc_driver_manager")
    except ImportError as error:
        raise MissingExtraError(f"A {kind}:// URL", driver.extra) from error
    file = session.folder / f"{sha256(sql.encode()).hexdigest()[:16]}.parquet"
    try:
        with dbapi.connect(**driver.arguments(url)) as connection, connection.cursor() as cursor:
            cursor.execute(sql)
            rows = session.connection.from_arrow(cursor.fetch_record_batch())
            # Snowflake writes names without quotes in capitals, and other servers as they are.
            named = ", ".join(
                f"{identifier(name)} AS {identifier(name.lower())}" for name in rows.columns
            )
            rows.project(named).to_parquet(str(file))
    except errors.Error as error:
        raise duckdb.OperationalError(_without_password(str(error), url)) from None
    return f"read_parquet({glob_literal(file)})"


def _without_password(message: str, url: str) -> str:
    password = urlsplit(url).netloc.rpartition("@")[0].partition(":")[2]
    for secret in filter(None, (password, unquote(password))):
        message = message.replace(secret, mask(secret))
    return message


def _snowflake(url: str) -> dict[str, Any]:
    """Return the driver's form of a URL, which has no scheme and no ``table``."""
    place, _, options = url.partition("://")[2].partition("?")
    pairs = [(name, value) for name, value in parse_qsl(options) if name != "table"]
    return {"uri": f"{place}?{urlencode(pairs)}" if pairs else place}


def _bigquery(url: str) -> dict[str, Any]:
    """Return the options for ``bigquery://project/dataset``; credentials are Google's default."""
    parts = urlsplit(url)
    options = {"project_id": parts.netloc, "dataset_id": parts.path.strip("/")}
    return {
        "db_kwargs": {
            f"adbc.bigquery.sql.{name}": value for name, value in options.items() if value
        }
    }


DRIVERS = {
    SNOWFLAKE: Driver("adbc_driver_snowflake.dbapi", SNOWFLAKE, _snowflake),
    BIGQUERY: Driver("adbc_driver_bigquery.dbapi", BIGQUERY, _bigquery),
}


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
