"""Measure what the sizes of `headwater plan` are computed from (`python -m bench.sizes`).

Each load goes through real servers and one worker. The constants are those that fit all loads best;
write them into `src/headwater/cli/sizes.toml`. Rates are rows of `make bench`.
"""

import asyncio
import socket
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import shake_128
from time import process_time
from typing import NamedTuple
from urllib.parse import urlsplit

import asyncpg
import numpy as np

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.logging import log
from headwater.settings.schema import Settings
from tests.servers import postgres, valkey_node

AT_ONCE = 1_000
SPAN = timedelta(days=29)


class Load(NamedTuple):
    """Events that each give all features of their entity a new value."""

    entities: int
    features: int
    events: int
    value_bytes: int = 10
    payload_bytes: int = 50
    windows: int = 0
    remembered: bool = False
    """Whether the ids of the events are remembered, to recognise repeated ones."""


class Sizes(NamedTuple):
    """Bytes after a load, and the CPU seconds of the worker that handled it."""

    redis: int
    history: int
    events: int
    series: int
    lake_history: int
    lake_events: int
    worker: float

    @property
    def postgres(self) -> int:
        return self.history + self.events + self.series


LOADS = (
    Load(4_000, 1, 4_000),
    Load(16_000, 1, 16_000),
    Load(4_000, 10, 4_000),
    Load(4_000, 4, 8_000, value_bytes=200),
    Load(4_000, 1, 40_000, remembered=True),
    Load(4_000, 1, 8_000, payload_bytes=400),
)
WINDOW_LOADS = (Load(20, 1, 20_000), Load(20, 1, 20_000, windows=1))


def text_of(number: int, part: int, length: int) -> str:
    """Return a text that differs for each number and part, and is compressed by half at best."""
    return shake_128(b"%d-%d" % (number, part)).hexdigest(length // 2 + 1)[:length]


def declared(settings: Settings, load: Load) -> FeatureStore:
    """Return a store with the features of a load."""
    store = FeatureStore(settings=settings)

    @entity(store)
    class Customer:
        customer_id: str

    def add(number: int) -> None:
        async def told(customer_id: str, event: ServiceEvent) -> str:
            # The value is a JSON text, with two quotes.
            return text_of(event.payload["number"], number, max(0, load.value_bytes - 2))

        feature(entity=Customer, trigger="told", name=f"feature_{number:02}")(told)

    for number in range(load.features):
        add(number)
    for number in range(load.windows):

        @feature(
            entity=Customer,
            trigger="told",
            name=f"window_{number:02}",
            window=["1h", "7d", "30d"],
            aggregate=["count", "sum", "avg", "max"],
        )
        def spent(customer_id: str, event: ServiceEvent) -> float | None:
            return float(event.payload["number"] % 100)

    return store


def events_of(load: Load) -> list[ServiceEvent]:
    """Return the events of a load, over most of a month."""
    start, step = datetime.now(UTC) - SPAN, SPAN / load.events
    return [
        ServiceEvent(
            "told",
            f"customer-{number % load.entities:08}",
            # With the number and the names, the JSON text has about as many bytes as the load says.
            {"number": number, "note": text_of(number, -1, max(0, load.payload_bytes - 30))},
            start + step * number,
            f"event-{number:012}",
        )
        for number in range(load.events)
    ]


async def measure(settings: Settings, load: Load) -> Sizes:
    """Run a load and return the bytes that it takes in an otherwise empty store."""
    store, events = declared(settings, load), events_of(load)
    async with store:
        tables, memory = await table_sizes(settings), used_memory(settings.redis.url)
        worker = 0.0
        for first in range(0, len(events), AT_ONCE):
            portion = events[first : first + AT_ONCE]
            await store.bus.publish_many(portion, dedup=load.remembered)
            begun = process_time()
            await store.drain()
            worker += process_time() - begun
        with tempfile.TemporaryDirectory() as folder:
            # It copies history to Postgres first.
            await store.history.export(folder)
        history, events_table, series = (
            now - then for now, then in zip(await table_sizes(settings), tables, strict=True)
        )
        redis = used_memory(settings.redis.url) - memory
    with tempfile.TemporaryDirectory() as folder:
        lake = await lake_sizes(settings.replace(lake={"url": folder}), load)
    return Sizes(redis, history, events_table, series, *lake, worker)


async def lake_sizes(settings: Settings, load: Load) -> tuple[int, int]:
    """Move what a load has left in Postgres into a lake; return the bytes of its two tables."""
    async with declared(settings, load) as store:
        tables = {table.table: table for table in (await store.lake.compact()).tables}
    assert tables["events"].rows == load.events
    assert tables["history"].rows == load.events * (load.features + load.windows)
    return tables["history"].bytes, tables["events"].bytes


async def table_sizes(settings: Settings) -> list[int]:
    schema = {"search_path": settings.postgres.schema}
    connection = await asyncpg.connect(settings.postgres.url, server_settings=schema)
    try:
        sql = "SELECT sum(pg_total_relation_size(relid))::bigint FROM pg_partition_tree($1)"
        large = [await connection.fetchval(sql, table) for table in ("_history", "_events")]
        return [*large, await connection.fetchval("SELECT pg_total_relation_size('_series')")]
    finally:
        await connection.close()


def used_memory(url: str) -> int:
    """Return the bytes that a Redis has allocated."""
    server = urlsplit(url)
    with socket.create_connection((server.hostname or "", server.port or 6379)) as connection:
        connection.sendall(b"INFO memory\r\n")
        answer = connection.recv(1 << 16).decode()
    [line] = [line for line in answer.splitlines() if line.startswith("used_memory:")]
    return int(line.partition(":")[2])


async def measure_alone(load: Load) -> Sizes:
    """Measure a load on new servers."""
    with valkey_node() as port, postgres() as url:
        settings = Settings().replace(
            redis={"url": f"redis://127.0.0.1:{port}/0", "timeout": 60},
            postgres={"url": url, "schema": "sizes"},
        )
        return await measure(settings, load)


def fitted(columns: Sequence[Sequence[float]], sizes: Sequence[float]) -> list[float]:
    """Return the factors of the columns that give the sizes, with the least squares of errors."""
    matrix = np.array(columns, dtype=float).T
    # Relative errors count, so that small loads matter as much as large ones.
    weights = 1 / np.array(sizes, dtype=float)
    factors, *_ = np.linalg.lstsq(matrix * weights[:, None], np.ones(len(sizes)), rcond=None)
    return [float(factor) for factor in factors]


async def main() -> None:
    log.configure("error", "auto")
    sizes = [await measure_alone(load) for load in LOADS]
    for load, size in zip(LOADS, sizes, strict=True):
        sys.stdout.write(f"{load} {size}\n")
    values = [load.events * load.features for load in LOADS]
    stored = [load.entities * load.features for load in LOADS]
    bytes_of_values = [count * load.value_bytes for count, load in zip(values, LOADS, strict=True)]
    redis = fitted(
        [
            [load.entities for load in LOADS],
            stored,
            [count * load.value_bytes for count, load in zip(stored, LOADS, strict=True)],
            [load.events if load.remembered else 0 for load in LOADS],
            # The partitions, whatever they hold.
            [1 for load in LOADS],
        ],
        [size.redis for size in sizes],
    )
    history = fitted([values, bytes_of_values], [size.history for size in sizes])
    payloads = [load.events * load.payload_bytes for load in LOADS]
    events = fitted([[load.events for load in LOADS], payloads], [size.events for size in sizes])
    lake = fitted([values, bytes_of_values], [size.lake_history for size in sizes])
    lake_events = fitted(
        [[load.events for load in LOADS], payloads], [size.lake_events for size in sizes]
    )
    series = fitted([stored], [size.series for size in sizes])
    without, having = [await measure_alone(load) for load in WINDOW_LOADS]
    windows = (having.redis - without.redis) / WINDOW_LOADS[0].entities
    for name, factors in {
        "redis: entity, value, byte of a value, remembered event, fixed": redis,
        "postgres: value, byte of a value": history,
        "postgres: event, byte of a payload": events,
        "postgres: feature of an entity": series,
        "lake: value, byte of a value": lake,
        "lake: event, byte of a payload": lake_events,
        "redis: windows of an entity": [windows],
    }.items():
        sys.stdout.write(f"{name}: {', '.join(f'{factor:.2f}' for factor in factors)}\n")


if __name__ == "__main__":
    asyncio.run(main())
