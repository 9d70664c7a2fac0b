"""Replays of the stored events of a test's store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import msgspec

from headwater import FeatureStore
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import session, text
from headwater.core.partitioning import bucket_of
from headwater.declarations.runtime import runtime_of
from headwater.features.services import Services
from headwater.history.backfill.order import ReplayOrder, ReplayReport
from headwater.history.backfill.replay import replay, replayed_changes
from headwater.history.runners import InlineRunner

_EVENTS = "SELECT event_id, event_type, entity_id, timestamp, received_at, payload FROM events"
_COLUMNS = {
    "bucket": "USMALLINT",
    "n": "BIGINT",
    "position": "VARCHAR",
    "event_id": "VARCHAR",
    "event_type": "VARCHAR",
    "entity_id": "VARCHAR",
    "timestamp": "BIGINT",
    "received_at": "BIGINT",
    "payload": "VARCHAR",
}


class OpenStore(msgspec.Struct, frozen=True):
    """A store that this process has open."""

    store: FeatureStore

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Services]:
        yield await runtime_of(self.store).open()


Row = tuple[str, str, datetime, str]
"""A value of history: entity id, JSON text, as_of and cause."""


async def history(store: FeatureStore, series: str) -> list[Row]:
    """Return all values of a series in history, in the order in which they count."""
    offline = (await runtime_of(store).open()).backends.offline
    found = await offline.query(
        "SELECT entity_id, CAST(value AS VARCHAR) AS value, as_of, cause FROM feature_history"
        f" WHERE feature = {text(series)} ORDER BY entity_id, as_of, written_at",
        {},
    )
    return [(entity_id, value, as_of, cause) for entity_id, value, as_of, cause in found.rows]


async def order_of(
    store: FeatureStore, feature: str, folder: Path, files: int = 1, **options: Any
) -> ReplayOrder:
    """Return the order to replay all stored events of a feature, after exporting them."""
    definition = runtime_of(store).registry.feature(feature)
    exported = await export_events(store, folder, definition.triggers, files)
    return ReplayOrder(
        source=OpenStore(store),
        feature=feature,
        series=f"{feature}@2",
        folder=folder / "results",
        files=exported,
        **options,
    )


async def replay_all(store: FeatureStore, order: ReplayOrder) -> ReplayReport:
    """Run an order and add the new values to history."""
    report = await replay(order, InlineRunner())
    engine = await runtime_of(store).open()
    for changes in replayed_changes(order, engine.registry.feature(order.feature)):
        await engine.backends.offline.append(changes)
    return report


async def export_events(
    store: FeatureStore, folder: Path, types: tuple[str, ...], files: int
) -> list[Path]:
    """Write the events of some types to files, each of a range of buckets."""
    offline = (await runtime_of(store).open()).backends.offline
    found = await offline.query(_EVENTS, {})
    rows = [
        (bucket_of(row[2]), n, str(n), *row[:3], to_micros(row[3]), to_micros(row[4]), row[5])
        for n, row in enumerate(found.rows)
        if row[1] in types
    ]
    exported = []
    for first in range(0, 1024, 1024 // files):
        last = first + 1024 // files - 1
        chosen = sorted(row for row in rows if first <= row[0] <= last)
        file = folder / f"events-{first:04}-{last:04}.parquet"
        with session(folder) as duck:
            _write(duck.connection, chosen, file)
        exported.append(file)
    return exported


def _write(connection: duckdb.DuckDBPyConnection, rows: list[tuple[Any, ...]], file: Path) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in _COLUMNS.items())
    connection.execute(f"CREATE TABLE e ({columns})")
    if rows:
        connection.executemany(f"INSERT INTO e VALUES ({', '.join('?' * len(_COLUMNS))})", rows)
    connection.execute(
        f"COPY (SELECT * FROM e ORDER BY bucket, n) TO {text(file)} (FORMAT parquet)"
    )
