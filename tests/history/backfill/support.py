"""Replays of the stored events of a test's store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from headwater import FeatureStore, ServiceEvent
from headwater.backends.runners.inline import InlineRunner
from headwater.core.clock import to_micros
from headwater.core.duckdb_session import session
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import text
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.features.services import Services
from headwater.history.backfill.replay import replay, replayed_changes
from headwater.history.backfill.task import ReplayJob
from headwater.model.backfills import ReplayReport

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
    """Return all values of a series in history, by entity and time."""
    offline = (await runtime_of(store).open()).backends.offline
    found = await offline.query(
        "SELECT entity_id, CAST(value AS VARCHAR) AS value, as_of, cause FROM feature_history"
        f" WHERE feature = {text(series)} ORDER BY entity_id, as_of, cause",
        {},
    )
    return [(entity_id, value, as_of, cause) for entity_id, value, as_of, cause in found.rows]


async def values_of(store: FeatureStore, series: str) -> dict[str, list[Any]]:
    """Return all values of a series in the order in which they were written, by entity."""
    offline = (await runtime_of(store).open()).backends.offline
    found = await offline.query(
        "SELECT entity_id, CAST(value AS VARCHAR) AS value FROM feature_history"
        f" WHERE feature = {text(series)} ORDER BY entity_id, written_at, as_of",
        {},
    )
    values: dict[str, list[Any]] = {}
    for entity_id, value in found.rows:
        values.setdefault(entity_id, []).append(msgspec.json.decode(value))
    return values


def declared(store: FeatureStore, name: str) -> FeatureDef:
    """Return the declaration of a feature."""
    return runtime_of(store).registry.feature(name)


async def job_of(
    store: FeatureStore, feature: str, folder: Path, files: int = 1, **options: Any
) -> ReplayJob:
    """Return the job to replay all stored events of a feature, after exporting them."""
    await store.drain()
    backends = (await runtime_of(store).open()).backends
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    exported = await backends.offline.export_events(
        folder,
        declared(store, feature).triggers,
        await backends.groups.positions(store.settings.worker.consumer_group),
        files=files,
    )
    return ReplayJob(
        source=OpenStore(store),
        feature=feature,
        series=f"{feature}@2",
        folder=folder / "results",
        files=exported,
        **options,
    )


async def replay_all(store: FeatureStore, job: ReplayJob) -> ReplayReport:
    """Run a job and add the new values to history."""
    report = await replay(job, InlineRunner())
    engine = await runtime_of(store).open()
    for changes in replayed_changes(job, declared(store, job.feature)):
        await engine.backends.offline.append(changes)
    return report


def write_events(events: Sequence[ServiceEvent], folder: Path, files: int) -> list[Path]:
    """Write events to files as the export of a store does, each of a range of buckets."""
    rows = [
        {
            "bucket": bucket_of(event.entity_id),
            "n": n,
            "position": str(n),
            "event_id": event.event_id,
            "event_type": event.event_type,
            "entity_id": event.entity_id,
            "timestamp": to_micros(event.timestamp),
            "received_at": to_micros(event.timestamp),
            "payload": msgspec.json.encode(event.payload).decode(),
        }
        for n, event in enumerate(events)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(rows, folder, first, 1024 // files) for first in range(0, 1024, 1024 // files)]


def _write(rows: Sequence[Mapping[str, Any]], folder: Path, first: int, buckets: int) -> Path:
    file = folder / f"events-{first:04}-{first + buckets - 1:04}.parquet"
    with session(folder) as duck:
        duck.load_rows("events", rows, _COLUMNS)
        duck.run(
            f"COPY (SELECT * FROM events WHERE bucket >= {first} AND bucket < {first + buckets}"
            f" ORDER BY bucket, n) TO {text(file)} (FORMAT parquet)"
        )
    return file
