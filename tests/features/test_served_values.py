"""On-demand features with ``log=True``: history has every value that a reader got."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

import pytest

from headwater import Context, ContextItem, FeatureStore, ServiceEvent, context, feature
from headwater.features.call_scope import at_moment
from headwater.testing import ManualClock
from tests.engine.support import past, query, until_shared

pytestmark = pytest.mark.both_environments


async def rows(store: FeatureStore, name: str) -> list[tuple[Any, ...]]:
    return await query(
        store,
        "SELECT value, as_of, written_at, cause FROM feature_history"
        f" WHERE feature = '{name}' ORDER BY written_at",
    )


async def test_every_value_that_was_computed_for_a_reader_is_in_history(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="seen")
    def visits(user_id: str, event: ServiceEvent) -> int:
        return 3

    @feature(entity=user, log=True)
    async def greeting(user_id: str) -> str:
        return f"{await store.get_feature('visits', user_id)} at {clock.now():%H:%M}"

    await store.publish("seen", "u1")
    await store.drain()
    moments: list[datetime] = []
    served: list[str] = []
    for _ in range(2):
        clock.advance("10m")
        moments.append(clock.now())
        served.append(await store.get_feature("greeting", "u1"))
    found = await rows(store, "greeting")
    assert [row[0] for row in found] == [f'"{value}"' for value in served]
    # The moment of the computation: at an earlier one, the value was not known.
    assert [row[1:3] for row in found] == [(moment, moment) for moment in moments]
    assert {row[3] for row in found} == {"served"}


async def test_a_shared_computation_is_logged_once(store: FeatureStore, user: type) -> None:
    go_on = asyncio.Event()

    @feature(entity=user, log=True)
    async def score(user_id: str) -> int:
        await go_on.wait()
        return 7

    readers = [asyncio.create_task(store.get_feature("score", "u1")) for _ in range(5)]
    # A reader whose answer from the server arrives later would start another computation.
    await until_shared(store, 5)
    go_on.set()
    assert await asyncio.gather(*readers) == [7] * 5
    assert await past(store, "score") == [7]


async def test_a_logged_value_is_not_an_online_value(store: FeatureStore, user: type) -> None:
    runs: list[str] = []

    @feature(entity=user, log=True)
    def score(user_id: str) -> int:
        runs.append(user_id)
        return len(runs)

    assert [await store.get_feature("score", "u1") for _ in range(2)] == [1, 2]
    report = await store.admin.audit()
    assert (report.differences, report.values) == ([], 0)


async def test_a_value_that_a_handler_read_is_logged_with_its_commit(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, log=True)
    async def score(user_id: str) -> int:
        return await store.get_feature("total", user_id) or 0

    @feature(entity=user, trigger="buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("total", user_id, event.payload["amount"])
        seen = int(await store.get_feature("score", user_id))
        if event.payload["amount"] < 0:
            raise ValueError("refused")
        return seen

    await store.publish("buy", "u1", {"amount": 5})
    await store.publish("buy", "u1", {"amount": -1})
    await store.drain()
    assert await store.get_feature("total", "u1") == 5
    assert await past(store, "score") == [5]


async def test_replays_and_reads_of_the_past_log_nothing(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, log=True)
    def score(user_id: str) -> int:
        return 7

    @context(store)
    async def summary(user_id: str) -> list[ContextItem]:
        return [ContextItem(f"score {await store.get_feature('score', user_id)}")]

    made: Context = await summary("u1")
    clock.advance("1m")
    await store.replay(made.context_id, "live")
    await store.replay(made.context_id, "as_of")
    with at_moment(clock.now()):
        await store.get_feature("score", "u1")
    assert await past(store, "score") == [7]
