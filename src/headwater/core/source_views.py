"""The sources that SQL features read, each available to a query as a view."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import duckdb

from headwater.core.duckdb_session import Session, glob_literal, headline, identifier, scalar
from headwater.core.sql_literals import text
from headwater.core.sql_sources import (
    BIGQUERY,
    POSTGRES,
    SEVERAL_STATEMENTS,
    SNOWFLAKE,
    has_files,
    has_several_statements,
    kind_of,
    scheme_of,
    shown,
    table_of,
    without_secrets,
)
from headwater.core.warehouses import attach_postgres, load_extension, stream
from headwater.errors import InvalidInputError

# The first of these words in the declared type of a SQLite column decides, as in SQLite.
_DECLARED_TYPES = {
    "BOOL": "BOOLEAN",
    "DATETIME": "TIMESTAMP",
    "TIMESTAMP": "TIMESTAMP",
    "DATE": "DATE",
    "INT": "BIGINT",
    "CHAR": "VARCHAR",
    "TEXT": "VARCHAR",
    "CLOB": "VARCHAR",
    "REAL": "DOUBLE",
    "FLOA": "DOUBLE",
    "DOUB": "DOUBLE",
    "NUM": "DOUBLE",
    "DEC": "DOUBLE",
}
_ACTUAL_TYPES = [({"integer"}, "BIGINT"), ({"integer", "real"}, "DOUBLE")]

_QUERY = "headwater_query"
_END = "\n/**/"  # of a comment in the last line
# What a server said, in an error of DuckDB with the whole statement before it.
_SERVER_ERROR = re.compile(r"\b(?:ERROR|FATAL):\s+(.+)")

_Reader = Callable[[Session, str, str], str]


def add_source(session: Session, name: str, location: str) -> None:
    """Create a view of a declared source under its name."""
    kind = kind_of(name, location)
    if not has_files(location):
        raise InvalidInputError(
            f"source {name!r} has no file at {str(Path(location).absolute())!r}; create it, or "
            "correct the path where the source is declared"
        )
    with reading(f"source {name!r}", location):
        rows = _READERS[kind](session, name, location)
        session.run(f"CREATE VIEW {identifier(name)} AS SELECT * FROM {rows}")


def write_query(session: Session, location: str, sql: str, file: Path) -> int:
    """Write the rows of a query, which the server or file of a location runs, to a Parquet file.

    Return their number. The query can change nothing.
    """
    query, kind = sql.strip().rstrip(";") + _END, kind_of("of the query", location)
    if has_several_statements(sql):
        raise InvalidInputError(SEVERAL_STATEMENTS)
    if kind not in _QUERIES:
        raise InvalidInputError(
            f"{shown(location)} runs no queries; name a server, such as postgres://host/database, "
            "or a DuckDB or SQLite file"
        )
    if not has_files(location):
        raise InvalidInputError(f"there is no file {location}; name one that exists")
    with reading("the query", location):
        rows = _QUERIES[kind](session, query, location)
        # A dictionary has one entry for 0.0 and -0.0.
        options = "FORMAT parquet, COMPRESSION zstd, DICTIONARY_SIZE_LIMIT 0"
        return int(scalar(session.run(f"COPY (SELECT * FROM {rows}) TO {text(file)} ({options})")))


@contextmanager
def reading(what: str, location: str) -> Iterator[None]:
    """Raise InvalidInputError, which names what is read, in place of errors of the readers."""
    try:
        yield
    except (duckdb.Error, sqlite3.Error) as error:
        said = _SERVER_ERROR.search(str(error))
        problem = headline(error) if isinstance(error, duckdb.Error) else str(error)
        problem = problem if said is None else said[1]
        raise InvalidInputError(
            f"{what} ({shown(location)}) cannot be read: {without_secrets(problem, [location])}"
        ) from error


def _file(function: str) -> _Reader:
    def read(session: Session, _name: str, location: str) -> str:
        if scheme_of(location):
            load_extension(session, "httpfs")
            return function.format(text(location))
        # DuckDB treats every path as a pattern; an existing file of that exact name takes
        # precedence.
        path = Path(location)
        return function.format(glob_literal(path) if path.exists() else text(path))

    return read


def _duckdb(session: Session, name: str, location: str) -> str:
    return f"{_attach_duckdb(session, location)}.main.{identifier(name)}"


def _attach_duckdb(session: Session, location: str) -> str:
    """Attach a file under the name that views in it give to it, if that is free; return it."""
    attached = session.run("SELECT database_name, path FROM duckdb_databases()").fetchall()
    if same := [name for name, path in attached if path and Path(path).samefile(location)]:
        return identifier(same[0])
    schemas = session.run("SELECT schema_name FROM duckdb_schemas()").fetchall()
    taken = {"", *(name.casefold() for name, *_ in (*attached, *schemas))}
    own = Path(location).name.partition(".")[0]
    alias = identifier(f"file {location}" if own.casefold() in taken else own)
    session.run(f"ATTACH {text(location)} AS {alias} (READ_ONLY)")
    return alias


def _query_duckdb(session: Session, sql: str, location: str) -> str:
    session.run(f"USE {_attach_duckdb(session, location)}")
    return f"({sql})"


def _postgres(session: Session, name: str, location: str) -> str:
    schema, _, table = table_of(name, location).rpartition(".")
    database = attach_postgres(session, location)
    return ".".join(map(identifier, (database, schema or "public", table)))


def _query_postgres(session: Session, sql: str, location: str) -> str:
    return f"postgres_query({text(attach_postgres(session, location))}, {text(sql)})"


def _warehouse(session: Session, name: str, location: str) -> str:
    return stream(session, f"SELECT * FROM {table_of(name, location)}", location)


def _query_sqlite(session: Session, sql: str, location: str) -> str:
    return _sqlite(session, _QUERY, location, f"CREATE TEMP VIEW {_QUERY} AS {sql}")


def _sqlite(session: Session, name: str, location: str, before: str = "") -> str:
    # DuckDB's own reader would be a second SQLite library in this process, and closing a file in
    # one library drops the POSIX locks of the other.
    file = session.folder / f"{name}.ndjson"
    address = f"file:{quote(str(Path(location).absolute()))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as database:
        database.execute(before)
        columns = _columns(database, name)
        longest = _dump(database, name, columns, file)
    table = f"headwater.{identifier(name)}"
    session.run("CREATE SCHEMA IF NOT EXISTS headwater")
    session.load(table, file, columns, longest=longest)
    return table


def _columns(database: sqlite3.Connection, table: str) -> dict[str, str]:
    declared = database.execute("SELECT name, type FROM pragma_table_info(?)", (table,)).fetchall()
    if not declared:
        raise sqlite3.OperationalError(f"it has no table or view {table!r}")
    return {name: _type(database, table, name, kind) for name, kind in declared}


def _type(database: sqlite3.Connection, table: str, column: str, declared: str) -> str:
    for word, kind in _DECLARED_TYPES.items():
        if word in declared.upper():
            return kind
    types = database.execute(
        f"SELECT DISTINCT typeof({identifier(column)}) FROM {identifier(table)}"
    ).fetchall()
    kinds = {kind for (kind,) in types} - {"null"}
    return next((duck for sqlite, duck in _ACTUAL_TYPES if kinds and kinds <= sqlite), "VARCHAR")


def _dump(database: sqlite3.Connection, table: str, columns: Mapping[str, str], file: Path) -> int:
    pairs = ", ".join(
        f"{text(name)}, iif(typeof({identifier(name)}) = 'blob', hex({identifier(name)}),"
        f" {identifier(name)})"
        for name in columns
    )
    longest = 0
    with file.open("wb") as lines:
        for (line,) in database.execute(
            f"SELECT CAST(json_object({pairs}) AS BLOB) FROM {identifier(table)}"
        ):
            longest = max(longest, len(line))
            lines.write(line + b"\n")
    return longest


_READERS: dict[str, _Reader] = {
    ".parquet": _file("read_parquet({})"),
    ".csv": _file("read_csv({})"),
    ".json": _file("read_json({})"),
    ".ndjson": _file("read_json({}, format = 'newline_delimited')"),
    ".jsonl": _file("read_json({}, format = 'newline_delimited')"),
    ".duckdb": _duckdb,
    ".sqlite": _sqlite,
    ".sqlite3": _sqlite,
    ".db": _sqlite,
    POSTGRES: _postgres,
    SNOWFLAKE: _warehouse,
    BIGQUERY: _warehouse,
}
_QUERIES: dict[str, _Reader] = {
    ".duckdb": _query_duckdb,
    ".sqlite": _query_sqlite,
    ".sqlite3": _query_sqlite,
    ".db": _query_sqlite,
    POSTGRES: _query_postgres,
    SNOWFLAKE: stream,
    BIGQUERY: stream,
}
