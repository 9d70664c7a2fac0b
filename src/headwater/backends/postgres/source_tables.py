"""The tables that SQL features query in place of files and other servers."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import asyncpg
import msgspec

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.copying import duckdb_thread
from headwater.backends.postgres.errors import headline
from headwater.backends.postgres.migrate import connected
from headwater.backends.postgres.pool import Postgres
from headwater.core.clock import Clock
from headwater.core.duckdb_session import Session, identifier, scalar
from headwater.core.source_views import add_source, reading
from headwater.core.sql_literals import text
from headwater.errors import InvalidInputError
from headwater.model.problems import OnStep
from headwater.model.sources import LoadedSource, SourceColumn, SourceTable
from headwater.settings.servers import PostgresSettings

# What a query without quotes finds, and else what one with quotes does.
_TABLES = """
SELECT given.name, c.oid, n.nspname, c.relname, obj_description(c.oid, 'pg_class') AS comment
FROM unnest($1::text[]) AS given (name)
JOIN pg_class AS c ON c.oid = coalesce(
    to_regclass(format('%I', lower(given.name))), to_regclass(format('%I', given.name))
)
JOIN pg_namespace AS n ON n.oid = c.relnamespace
"""
_COLUMNS = """
SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute
WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_MARK = "Loaded by `headwater sources load`: "
_BYTES_AT_ONCE = 1 << 20
_LONGEST_NAME = 63
# The classes of Postgres's error codes that concern the rows and columns, and one that does not.
_UNFIT = ("0A", "22", "23", "2B", "42", "54")
_DENIED = "42501"
_JSON = ("jsonb", "CAST(to_json({}) AS VARCHAR)")
# The type in Postgres for each of DuckDB, and the SQL of its text where that is another.
_TYPES = {
    "BOOLEAN": "boolean",
    "TINYINT": "smallint",
    "UTINYINT": "smallint",
    "SMALLINT": "smallint",
    "USMALLINT": "integer",
    "INTEGER": "integer",
    "UINTEGER": "bigint",
    "BIGINT": "bigint",
    "UBIGINT": "numeric",
    "HUGEINT": "numeric",
    "UHUGEINT": "numeric",
    "FLOAT": "real",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "UUID": "uuid",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIME WITH TIME ZONE": "time with time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMP_S": "timestamp without time zone",
    "TIMESTAMP_MS": "timestamp without time zone",
    "TIMESTAMP_NS": "timestamp without time zone",
    "TIMESTAMP WITH TIME ZONE": "timestamp with time zone",
    "INTERVAL": "interval",
}
_DECIMAL = re.compile(r"DECIMAL(\(\d+,\d+\))")


class _Mark(msgspec.Struct, frozen=True):
    """The comment on a table that was loaded."""

    rows: int
    loaded_at: str


class _Rows(NamedTuple):
    """The rows of a source as a CSV file."""

    file: Path
    number: int
    columns: Sequence[SourceColumn]


class PostgresSourceTables:
    """The tables of sources in Headwater's schema."""

    def __init__(self, postgres: Postgres, settings: PostgresSettings, clock: Clock) -> None:
        self._postgres = postgres
        self._settings = settings
        self._clock = clock

    async def tables(self, names: Sequence[str]) -> Mapping[str, SourceTable]:
        return await self._postgres.run(lambda connection: _tables(connection, names))

    async def load(self, name: str, location: str, progress: OnStep | None = None) -> LoadedSource:
        await self._postgres.prepare()
        await self._check_own(name)  # before the source is read
        with TemporaryDirectory(prefix="headwater-") as folder:
            async with duckdb_thread(Path(folder)) as thread:
                rows = await thread.run(partial(_write, thread.duck, name, location))
                async with connected(self._settings) as connection:
                    with _naming(name):
                        await self._replace(connection, name, rows, progress)
        table = f"{self._settings.schema}.{name.lower()}"
        return LoadedSource(name, table, rows.number, rows.columns)

    async def _check_own(self, name: str) -> None:
        if len(name.encode()) > _LONGEST_NAME:
            raise InvalidInputError(
                f"source {name!r} cannot be loaded: names of tables have at most {_LONGEST_NAME} "
                "bytes; rename the source"
            )
        table = (await self.tables([name])).get(name)
        if table is not None and not table.is_loaded:
            raise InvalidInputError(
                f"{table.name} was not made by `headwater sources load`, so it is not replaced; "
                f"queries read it as the source {name!r}. Drop or rename it, or rename the source"
            )

    async def _replace(
        self, connection: Connection, name: str, rows: _Rows, progress: OnStep | None
    ) -> None:
        """Fill a new table and put it in the place of the old one.

        Its rows are frozen, so that also a reader whose snapshot is older than they are sees all.
        """
        schema, own = self._settings.schema, identifier(name.lower())
        new = f"_loading_{sha256(own.encode()).hexdigest()[:16]}"
        target, waiting = f"{identifier(schema)}.{own}", f"{identifier(schema)}.{identifier(new)}"
        async with connection.transaction():
            await connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"source {target}"
            )
            await self._check_own(name)
            await connection.execute(await _creation(connection, waiting, target, rows.columns))
            await connection.copy_to_table(
                new, schema_name=schema, source=_chunks(rows, progress), format="csv", freeze=True
            )
            await connection.execute(f"ANALYZE {waiting}")
            # Readers queue behind this statement while it waits for those before it.
            await connection.execute(f"SET LOCAL lock_timeout = '{self._settings.timeout}s'")
            await connection.execute(f"DROP TABLE IF EXISTS {target}")
            await connection.execute(f"ALTER TABLE {waiting} RENAME TO {own}")
            mark = _Mark(rows.number, self._clock.now().isoformat())
            comment = _MARK + msgspec.json.encode(mark).decode()
            await connection.execute(f"COMMENT ON TABLE {target} IS {text(comment)}")


async def _tables(connection: Connection, names: Sequence[str]) -> dict[str, SourceTable]:
    found = await connection.fetch(_TABLES, names)
    return {
        name: _table(f"{schema}.{table}", comment or "")
        for name, _, schema, table, comment in found
    }


def _table(name: str, comment: str) -> SourceTable:
    before, mark, values = comment.partition(_MARK)
    if before or not mark:
        return SourceTable(name, is_loaded=False)
    try:
        return msgspec.convert(
            {"name": name, "is_loaded": True, **msgspec.json.decode(values)}, SourceTable
        )
    except msgspec.MsgspecError:  # a comment that was changed
        return SourceTable(name, is_loaded=False)


async def _creation(
    connection: Connection, new: str, old: str, columns: Sequence[SourceColumn]
) -> str:
    """Return the statement that creates a table; with the old one's indexes if its columns stay."""
    oid = await connection.fetchval("SELECT to_regclass($1)::oid", old)
    present = [] if oid is None else [tuple(row) for row in await connection.fetch(_COLUMNS, oid)]
    if present == [(column.name, column.type) for column in columns]:
        return f"CREATE TABLE {new} (LIKE {old} INCLUDING INDEXES INCLUDING CONSTRAINTS)"
    declared = ", ".join(f"{identifier(column.name)} {column.type}" for column in columns)
    return f"CREATE TABLE {new} ({declared})"


def _write(duck: Session, name: str, location: str) -> _Rows:
    """Write the rows of a source to a CSV file, with a type of Postgres for each column."""
    add_source(duck, name, location)
    given = duck.run(f"DESCRIBE SELECT * FROM {identifier(name)}").fetchall()
    columns, values = [], []
    for column, kind, *_ in given:
        postgres_type, value = _type(kind)
        columns.append(SourceColumn(column.lower(), postgres_type))
        values.append(value.format(identifier(column)))
    _check_columns(name, columns)
    file = duck.folder / "rows.csv"
    texts = ", ".join(
        identifier(f"c{n}") for n, column in enumerate(columns) if column.type == "text"
    )
    quoted = f", FORCE_QUOTE ({texts})" if texts else ""
    selected = ", ".join(f"{value} AS c{n}" for n, value in enumerate(values))
    with reading(f"source {name!r}", location):
        number = scalar(
            duck.run(
                f"COPY (SELECT {selected} FROM {identifier(name)}) TO {text(file)}"
                f" (FORMAT csv, HEADER false{quoted})"
            )
        )
    return _Rows(file, number, columns)


def _type(kind: str) -> tuple[str, str]:
    """Return the type in Postgres for one of DuckDB, and the SQL of its text."""
    if kind in _TYPES:
        return _TYPES[kind], "{}"
    if decimal := _DECIMAL.fullmatch(kind):
        return f"numeric{decimal[1]}", "{}"
    if kind == "BLOB":
        return "bytea", "'\\x' || hex({})"
    if kind.startswith("ENUM"):
        return "text", "{}"
    if kind.endswith("[]") and kind[:-2] in _TYPES:
        return f"{_TYPES[kind[:-2]]}[]", _ARRAY
    return _JSON


# An array as Postgres writes it: each member in quotes, and null without.
_ARRAY = (
    "'{{' || array_to_string(list_transform({}, lambda x: CASE WHEN x IS NULL THEN 'NULL' ELSE"
    " '\"' || replace(replace(CAST(x AS VARCHAR), '\\', '\\\\'), '\"', '\\\"') || '\"' END),"
    " ',') || '}}'"
)


def _check_columns(name: str, columns: Sequence[SourceColumn]) -> None:
    names = [column.name for column in columns]
    twice = [column for number, column in enumerate(names) if column in names[:number]]
    if twice:
        raise InvalidInputError(
            f"source {name!r} has several columns {twice[0]!r}, which queries could not tell apart "
            "in Postgres; rename one of them"
        )
    long = [column for column in names if len(column.encode()) > _LONGEST_NAME]
    if long:
        raise InvalidInputError(
            f"source {name!r} has a column {long[0]!r}, and Postgres allows names of at most "
            f"{_LONGEST_NAME} bytes; rename it"
        )


async def _chunks(rows: _Rows, progress: OnStep | None) -> AsyncIterator[bytes]:
    size, done = max(1, rows.file.stat().st_size), 0
    with rows.file.open("rb") as file:
        while chunk := await asyncio.to_thread(file.read, _BYTES_AT_ONCE):
            yield chunk
            done += len(chunk)
            if progress is not None:
                progress(rows.number * done // size, rows.number)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the source in errors about its rows and columns, and about views of its table."""
    try:
        yield
    except asyncpg.DependentObjectsStillExistError as error:
        raise InvalidInputError(
            f"source {name!r} cannot be loaded, because views depend on its table: {error.detail}; "
            "drop them, load it, and create them again"
        ) from error
    except asyncpg.PostgresError as error:
        if error.sqlstate[:2] not in _UNFIT or error.sqlstate == _DENIED:
            raise
        raise InvalidInputError(
            f"source {name!r} cannot be stored in Postgres: {headline(error)}"
        ) from error
