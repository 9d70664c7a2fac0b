"""Postgres schemas that tests use one after the other, because creating the tables takes long.

After a test its schema is emptied. If the test changed a definition, made schemas whose names begin
with that of its own, or left a connection open, the schema is not used again.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4

import asyncpg

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.migrate import migrate
from headwater.settings.schema import Settings

T = TypeVar("T")

CLOSED_WITHIN_SECONDS = 2.0
LOCKED_WITHIN_SECONDS = 1.0
POLL_SECONDS = 0.002

# Everything that a statement other than one that changes rows could change.
_DEFINITIONS = """
WITH own AS MATERIALIZED (
    SELECT * FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
)
SELECT md5(string_agg(part, ',' ORDER BY part)) FROM (
    SELECT concat_ws(' ', 'schema', nspowner, nspacl) AS part FROM pg_namespace WHERE nspname = $1
    UNION ALL
    SELECT concat_ws(' ', 'relation', oid, relname, relkind, relowner, relacl, relpersistence,
        relispartition, reloptions, relrowsecurity) FROM own
    UNION ALL
    SELECT concat_ws(' ', 'column', attrelid, attnum, attname, atttypid, attnotnull, attacl)
    FROM pg_attribute WHERE attrelid IN (SELECT oid FROM own) AND attnum > 0
    UNION ALL
    SELECT concat_ws(' ', 'constraint', oid, conname, convalidated)
    FROM pg_constraint WHERE conrelid IN (SELECT oid FROM own)
    UNION ALL
    SELECT concat_ws(' ', 'trigger', oid, tgname, tgenabled)
    FROM pg_trigger WHERE tgrelid IN (SELECT oid FROM own)
    UNION ALL
    SELECT concat_ws(' ', 'index', indexrelid, indisvalid)
    FROM pg_index WHERE indrelid IN (SELECT oid FROM own)
    UNION ALL
    SELECT concat_ws(' ', 'function', pg_proc.oid, pg_proc.xmin)
    FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace WHERE nspname = $1
    UNION ALL
    SELECT concat_ws(' ', 'neighbour', oid) FROM pg_namespace WHERE starts_with(nspname, $1 || '_')
) AS parts
"""
_WITH_ROWS = """
SELECT pg_class.oid::regclass::text FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace
WHERE nspname = $1 AND relkind = 'r' AND pg_relation_size(pg_class.oid) > 0
"""
_SEQUENCES = """
SELECT setval(format('%I.%I', schemaname, sequencename)::regclass, start_value, false)
FROM pg_sequences WHERE schemaname = $1 AND last_value IS NOT NULL
"""
_SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headwater/' || $1"


class Schema(NamedTuple):
    """A schema as the migration leaves it: its name, its definitions and the rows of its tables."""

    name: str
    definitions: str
    rows: Mapping[str, tuple[str, ...]]


class Schemas:
    """The schemas of one server, in a thread that has a connection to it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._free: list[Schema] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._connection: Connection | None = None

    def __enter__(self) -> Schemas:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            self._run(self._connection.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @contextmanager
    def lent(self) -> Iterator[str]:
        """Yield the name of a schema with empty tables, for one test."""
        schema = self._free.pop() if self._free else self._run(self._create())
        yield schema.name
        if self._run(self._is_emptied(schema)):
            self._free.append(schema)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_closed():
            self._connection = await asyncpg.connect(self._url, ssl=False)
        return self._connection

    async def _create(self) -> Schema:
        name = f"test_{uuid4().hex[:12]}"
        await migrate(Settings().replace(postgres={"url": self._url, "schema": name}))
        connection = await self._connected()
        tables = [row[0] for row in await connection.fetch(_WITH_ROWS, name)]
        rows = {
            table: tuple(
                row[0] for row in await connection.fetch(f"SELECT to_jsonb(t)::text FROM {table} t")
            )
            for table in tables
        }
        return Schema(name, await connection.fetchval(_DEFINITIONS, name), rows)

    async def _is_emptied(self, schema: Schema) -> bool:
        """Remove all rows that were added; return False if the schema cannot be used again."""
        connection = await self._connected()
        if not await self._is_left(connection, schema.name):
            return False
        try:
            return await self._empty(connection, schema)
        except asyncpg.LockNotAvailableError:
            return False

    async def _empty(self, connection: Connection, schema: Schema) -> bool:
        async with connection.transaction():
            await connection.execute(f"SET LOCAL lock_timeout = '{LOCKED_WITHIN_SECONDS}s'")
            if await connection.fetchval(_DEFINITIONS, schema.name) != schema.definitions:
                return False
            tables = [row[0] for row in await connection.fetch(_WITH_ROWS, schema.name)]
            # The tables of the audit log refuse it otherwise.
            await connection.execute("SET LOCAL session_replication_role = replica")
            await connection.execute(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY CASCADE")
            for table, rows in schema.rows.items():
                for row in rows:
                    await connection.execute(
                        f"INSERT INTO {table} SELECT * FROM jsonb_populate_record"
                        f"(NULL::{table}, $1)",
                        row,
                    )
            await connection.execute(_SEQUENCES, schema.name)
        return True

    async def _is_left(self, connection: Connection, name: str) -> bool:
        """Return whether no session uses the schema any more."""
        deadline = time.monotonic() + CLOSED_WITHIN_SECONDS
        while await connection.fetchval(_SESSIONS, name):
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(POLL_SECONDS)
        return True
