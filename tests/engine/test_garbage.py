"""Handling an event leaves no reference cycles for the garbage collector.

A collection pauses the whole process. Reference cycles cause one every few hundred events, and then
the slowest percent of values is late.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, Worker, context, feature
from tests.engine.support import until

pytestmark = pytest.mark.both_environments

TIMES = 30


@contextmanager
def nothing_collected() -> Iterator[None]:
    """Fail if each repetition leaves at least one object of ours to the garbage collector.

    Other objects do not count: an expired timer leaves a few in any case. Objects that existed
    before, such as the stores of other tests, do not count either.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        found = Counter(type(each).__qualname__ for each in gc.garbage if _is_ours(each))
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        # What exists stays frozen, or every later collection would visit all modules and tests.
    assert found.total() < TIMES, f"left for the collector: {found.most_common()}"


def _is_ours(each: object) -> bool:
    return type(each).__module__.startswith("headwater")


async def test_handling_an_event(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    @feature(entity=user, trigger="visit")
    def last(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["number"])

    async def visit(number: int) -> None:
        await store.publish("visit", "u1", {"number": number})

        async def seen() -> bool:
            return bool(await store.get_feature("last", "u1") == number)

        await until(seen)

    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    try:
        await visit(-1)
        with nothing_collected():
            for number in range(TIMES):
                await visit(number)
    finally:
        worker.stop()
        await running
    assert await store.get_feature("visits", "u1") == TIMES + 1


@pytest.mark.parametrize("at_once", [1, 8])
async def test_publishing_reading_and_assembling(
    store: FeatureStore, user: type, at_once: int
) -> None:
    @feature(entity=user, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    @context(store, max_tokens=100)
    async def greeting(user_id: str) -> list[ContextItem]:
        return [ContextItem(f"visits: {await store.get_feature('visits', user_id)}")]

    doings: list[Callable[[], Awaitable[object]]] = [
        lambda: store.publish("visit", "u1"),
        lambda: store.get_features(["visits"], ["u1"]),
        lambda: greeting("u1"),
        lambda: store.records.find(feature="visits", entity_id="u1", limit=1),
    ]
    for do in doings:
        await do()
        with nothing_collected():
            for _ in range(TIMES):
                await asyncio.gather(*(do() for _ in range(at_once)))
