"""Helpers for tests of the engine."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import REGISTRY

from headwater import FeatureStore
from headwater.declarations.run_set import RunSet
from headwater.declarations.runtime import runtime_of

PATIENCE_SECONDS = 60.0


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a condition that another task or process makes true."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            answer = condition()
            if await answer if inspect.isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.005)


async def until_shared(store: FeatureStore, callers: int) -> None:
    """Wait until so many callers wait for computations and searches that run."""
    engine = await runtime_of(store).open()
    shared = [engine.reader._flights._flights, engine.retrievers._flights._flights]  # noqa: SLF001
    await until(
        lambda: sum(each.callers for flights in shared for each in flights.values()) == callers
    )


async def run_set(store: FeatureStore) -> RunSet:
    """Return the versions of features that a worker of the store runs."""
    engine = await runtime_of(store).open()
    return engine.registry.run_set(engine.settings.worker.consumer_group)


async def backlog(store: FeatureStore) -> int:
    """Return the number of waiting events."""
    return await (await runtime_of(store).open()).backends.bus.backlog()


async def query(store: FeatureStore, sql: str) -> list[tuple[Any, ...]]:
    """Rows over the event log, feature history and the declared sources."""
    engine = await runtime_of(store).open()
    rows = await engine.backends.offline.query(sql, runtime_of(store).registry.sources)
    return [tuple(row) for row in rows.rows]


async def past(store: FeatureStore, feature: str, entity_id: str = "u1") -> list[Any]:
    """Every value that a feature had, in the order of the moments they speak of."""
    rows = await query(
        store,
        "SELECT value FROM feature_history"
        f" WHERE feature = '{feature}' AND entity_id = '{entity_id}' ORDER BY as_of, written_at",
    )
    return [json.loads(value) for (value,) in rows]


def metric(name: str, **labels: str) -> float:
    """The present count of a metric of this process."""
    return REGISTRY.get_sample_value(name, labels) or 0.0


def records(text: str, event: str) -> list[dict[str, Any]]:
    """The log records of one kind among the lines of a log."""
    # The last piece is empty, or a line that is still being written.
    *lines, _ = text.split("\n")
    written = [json.loads(line) for line in lines if line.startswith("{")]
    return [record for record in written if record["event"] == event]
