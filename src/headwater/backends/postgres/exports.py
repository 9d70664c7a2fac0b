"""Copies of history and of the event log as Parquet files."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.copying import Collector, CsvFile, DuckThread, duckdb_thread
from headwater.backends.postgres.history_sql import pages_of, partitions_of, settled_number
from headwater.backends.postgres.pool import Postgres
from headwater.backends.postgres.replicas import ReplicaReads
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import column_types, identifier, scalar
from headwater.core.partitioning import BUCKETS, bucket_of
from headwater.core.sql_literals import text, texts
from headwater.ports.history import VALUE_COLUMNS

# Keeps one statement far below its timeout.
ROWS_AT_ONCE = 200_000

_HISTORY = """
SELECT seq, feature, entity, entity_id, kind, value, as_of, written_at, cause
FROM _history WHERE seq > {first} AND seq <= {last}
"""
_HISTORY_COLUMNS = column_types(
    "seq BIGINT, feature VARCHAR, entity VARCHAR, entity_id VARCHAR, kind VARCHAR, "
    "value VARCHAR, as_of TIMESTAMPTZ, written_at TIMESTAMPTZ, cause VARCHAR"
)
# The columns of a segment.
_TYPED_HISTORY = f"""
SELECT seq, feature, entity, entity_id, bucket, kind, as_of, written_at, cause,
       {VALUE_COLUMNS}
FROM history JOIN buckets USING (entity_id)
"""

# All partitions, so that none is removed meanwhile. The snapshot is taken afterwards.
_LOCK_EVENTS = "LOCK TABLE _events IN ACCESS SHARE MODE"
# A position is a pair of numbers.
_EVENTS = """
SELECT partition, split_part(position, '-', 1), split_part(position, '-', 2), event_id, event_type,
       entity_id, "timestamp", received_at, payload
FROM {table} JOIN (VALUES {upto}) AS upto (partition, major, minor) USING (partition)
WHERE {pages}
  AND event_type IN ({types}) AND "timestamp" >= {since}
  AND (split_part(position, '-', 1)::numeric, split_part(position, '-', 2)::numeric)
      <= (upto.major, upto.minor)
"""
_EVENT_COLUMNS = column_types(
    "partition INTEGER, major UBIGINT, minor UBIGINT, event_id VARCHAR, "
    "event_type VARCHAR, entity_id VARCHAR, timestamp TIMESTAMPTZ, "
    "received_at TIMESTAMPTZ, payload VARCHAR"
)
_NUMBERED_EVENTS = """
SELECT bucket, row_number() OVER (ORDER BY major, minor, partition) AS n,
       major || '-' || minor AS position, event_id, event_type, entity_id,
       epoch_us("timestamp") AS "timestamp", epoch_us(received_at) AS received_at, payload
FROM events JOIN buckets USING (entity_id)
"""
_TO_PARQUET = "(FORMAT parquet, COMPRESSION zstd)"


async def export_history(postgres: Postgres, reads: ReplicaReads, file: Path, after: int) -> int:
    """Write the rows with numbers above one, up to a number that no later row can have."""
    last = await settled_number(postgres)
    async with duckdb_thread(file.parent) as thread:
        await thread.run(partial(_create, thread, "history", _HISTORY_COLUMNS))
        collector = Collector(thread, partial(_collect, thread, "history", _HISTORY_COLUMNS))
        for first in range(after, last, ROWS_AT_ONCE):
            sql = _HISTORY.format(first=first, last=min(first + ROWS_AT_ONCE, last))
            await reads.run(partial(collector.add, sql=sql))
        await collector.finish()
        has_rows = await thread.run(partial(_write_history, thread, file))
    return last if has_rows else after


def _create(thread: DuckThread, table: str, columns: Mapping[str, str]) -> None:
    types = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
    thread.duck.run(f"CREATE OR REPLACE TABLE {table} ({types})")


def _collect(thread: DuckThread, table: str, columns: Mapping[str, str], file: CsvFile) -> None:
    thread.duck.run(f"INSERT INTO {table} FROM {file.rows(columns)}")


def add_buckets(thread: DuckThread, table: str) -> None:
    """Create the table ``buckets``; DuckDB has no function for it."""
    duck = thread.duck
    duck.connection.create_function("bucket_of", bucket_of, ["VARCHAR"], "USMALLINT")
    duck.run(
        "CREATE TABLE buckets AS SELECT entity_id, bucket_of(entity_id) AS bucket"
        f" FROM (SELECT DISTINCT entity_id FROM {table})"
    )


def _write_history(thread: DuckThread, file: Path) -> bool:
    """Write the rows, if there are any, sorted like a segment."""
    if not scalar(thread.duck.run("SELECT count(*) FROM history")):
        return False
    add_buckets(thread, "history")
    unfinished = thread.duck.folder / "history.parquet"
    thread.duck.run(
        f"COPY ({_TYPED_HISTORY} ORDER BY feature, bucket, entity_id, as_of, seq)"
        f" TO {text(unfinished)} {_TO_PARQUET}"
    )
    unfinished.rename(file)
    return True


async def export_events(
    reads: ReplicaReads,
    folder: Path,
    event_types: Collection[str],
    upto: Mapping[int, str],
    *,
    since: datetime | None,
    files: int,
) -> list[Path]:
    """Write the events up to a position of each partition, from one snapshot."""

    async def copy(connection: Connection) -> None:
        await thread.run(partial(_create, thread, "events", _EVENT_COLUMNS))
        collector = Collector(thread, partial(_collect, thread, "events", _EVENT_COLUMNS))
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            await connection.execute(_LOCK_EVENTS)
            for table in await partitions_of(connection, "_events"):
                for pages in await pages_of(connection, table):
                    sql = _EVENTS.format(table=table, pages=pages, **filters)
                    await collector.add(connection, sql)
        await collector.finish()

    filters = {
        "types": texts(sorted(event_types)) or "NULL",
        "since": "'-infinity'" if since is None else f"_moment({to_micros(since)})",
        "upto": ", ".join(_upto(*item) for item in upto.items()) or "(0, -1, 0)",
    }
    async with duckdb_thread(folder) as thread:
        await reads.run(copy)
        return await thread.run(partial(_write_events, thread, folder, files))


def _upto(partition: int, position: str) -> str:
    major, _, minor = position.partition("-")
    return f"({partition}, {int(major)}::numeric, {int(minor or 0)}::numeric)"


def _write_events(thread: DuckThread, folder: Path, files: int) -> list[Path]:
    duck = thread.duck
    add_buckets(thread, "events")
    duck.run(f"CREATE TABLE numbered AS {_NUMBERED_EVENTS}")
    written: list[Path] = []
    bounds = [BUCKETS * number // files for number in range(files + 1)]
    for first, end in itertools.pairwise(bounds):
        name = f"events-{first:04}-{end - 1:04}.parquet"
        duck.run(
            f"COPY (FROM numbered WHERE bucket BETWEEN {first} AND {end - 1} ORDER BY bucket, n)"
            f" TO {text(duck.folder / name)} {_TO_PARQUET}"
        )
        written.append((duck.folder / name).rename(folder / name))
    return written
