"""Our own operations, measured through the public API."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from bench.case import Effort, Figure
from bench.features import NAMES, store
from bench.floors import ENTITIES, Measuring, Rate
from bench.pings import Watch, events_in, paced
from headwater import FeatureStore, ServiceEvent
from headwater.cli.processes import long_runner

PUBLISHERS = 64
AT_ONCE = 500  # publishes in flight while a round is prepared
FILLED_AT_ONCE = 1_000  # events, the most that one call may publish

Call = Callable[[], Awaitable[object]]
Taken = TypeVar("Taken", float, Figure)


def purchase(number: int, event_type: str = "purchase", entities: int = ENTITIES) -> ServiceEvent:
    return ServiceEvent(
        event_type=event_type, entity_id=f"u{number % entities}", payload={"amount": 1.5}
    )


def profile(number: int) -> ServiceEvent:
    return ServiceEvent(event_type="profile", entity_id=f"u{number}", payload={"base": 1.5})


async def publish_all(events: list[ServiceEvent]) -> None:
    for start in range(0, len(events), AT_ONCE):
        await asyncio.gather(*map(store.bus.publish, events[start : start + AT_ONCE]))


@contextmanager
def worker(where: str, effort: Effort) -> Iterator[Rate]:
    """Events per second through a read-modify-write handler, durable, one log record each."""
    with _working(effort, "purchase") as measure:
        yield measure


@contextmanager
def worker_two_async(where: str, effort: Effort) -> Iterator[Rate]:
    """The same with two async handlers for each event."""
    with _working(effort, "two_async") as measure:
        yield measure


@contextmanager
def worker_async_and_sync(where: str, effort: Effort) -> Iterator[Rate]:
    """The same with an async and a sync handler for each event."""
    with _working(effort, "async_and_sync") as measure:
        yield measure


@contextmanager
def worker_many_entities(where: str, effort: Effort) -> Iterator[Rate]:
    """The same in a store with many entities, of which a round meets few twice."""
    with _working(effort, "async_and_sync", effort.past_events) as measure:
        yield measure


@contextmanager
def _working(effort: Effort, event_type: str, entities: int = ENTITIES) -> Iterator[Rate]:
    numbers = itertools.count()

    def next_events(count: int) -> list[ServiceEvent]:
        chosen = itertools.islice(numbers, count)
        return [purchase(number, event_type, entities) for number in chosen]

    async def prepare() -> None:
        if entities > ENTITIES:
            await fill_up(entities, next_events)

    async def rate() -> float:
        await publish_all(next_events(effort.events))
        start = time.perf_counter()
        await store.drain()
        return effort.events / (time.perf_counter() - start)

    with one_loop(rate, prepare) as measure:
        yield measure


async def fill_up(count: int, next_events: Callable[[int], list[ServiceEvent]]) -> None:
    """Publish and handle many events, a part at a time."""
    for _ in range(0, count, FILLED_AT_ONCE):
        await store.bus.publish_many(next_events(FILLED_AT_ONCE), dedup=False)
        await store.drain()


@contextmanager
def fill(where: str, effort: Effort) -> Iterator[Rate]:
    """Publish the events of a round; return their number."""
    events = [purchase(number) for number in range(effort.server_events)]

    async def publish() -> float:
        for start in range(0, len(events), AT_ONCE):
            await store.bus.publish_many(events[start : start + AT_ONCE], dedup=False)
        return len(events)

    with one_loop(publish) as measure:
        yield measure


@contextmanager
def drain(where: str, effort: Effort) -> Iterator[Rate]:
    """Seconds until no event waits, in this or another worker."""

    async def seconds() -> float:
        start = time.perf_counter()
        await store.drain()
        return time.perf_counter() - start

    with one_loop(seconds) as measure:
        yield measure


@contextmanager
def ping(where: str, effort: Effort) -> Iterator[Rate]:
    """Publish events at a steady pace; return the rate."""

    async def rate() -> float:
        start = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for entity_id, early in paced(effort.seconds):
                await asyncio.sleep(early)
                sent = {"sent": time.monotonic()}
                group.create_task(store.publish("ping", entity_id, sent))
        return events_in(effort.seconds) / (time.perf_counter() - start)

    with one_loop(rate) as measure:
        yield measure


@contextmanager
def watch(where: str, effort: Effort) -> Iterator[Callable[[], Figure]]:
    """Measure how long it takes until the values of the events can be read."""
    watching = Watch()

    async def figure() -> Figure:
        for ids in watching.looks(effort.seconds):
            rows = await store.get_features(["sent_at"], ids)
            watching.saw(ids, [rows[entity_id]["sent_at"] for entity_id in ids])
        return watching.figure()

    with one_loop(figure) as measure:
        yield measure


@contextmanager
def read_one(where: str, effort: Effort) -> Iterator[Rate]:
    """get_features of one entity with ten features, per second."""
    with _reading(effort, ids=1) as measure:
        yield measure


@contextmanager
def read_hundred(where: str, effort: Effort) -> Iterator[Rate]:
    """get_features of a hundred entities with ten features each, per second."""
    with _reading(effort, ids=100) as measure:
        yield measure


@contextmanager
def read_after_many_events(where: str, effort: Effort) -> Iterator[Rate]:
    """get_features of one entity with ten features, after many events of the entities."""
    with _reading(effort, ids=1, past_events=effort.past_events) as measure:
        yield measure


@contextmanager
def _reading(effort: Effort, *, ids: int, past_events: int = 0) -> Iterator[Rate]:
    wanted = [f"u{number}" for number in range(ids)]
    entities = effort.of(ENTITIES, ENTITIES, ids)

    async def prepare() -> None:
        await publish_all([profile(number) for number in range(entities)])
        await fill_up(past_events, lambda count: [purchase(number) for number in range(count)])
        await store.drain()

    async def rate() -> float:
        return await calls_per_second(lambda: store.get_features(NAMES, wanted), effort.seconds)

    with one_loop(rate, prepare) as measure:
        yield measure


@contextmanager
def publish(where: str, effort: Effort) -> Iterator[Rate]:
    """Events per second that one client publishes, each durable before the next."""
    with _publishing(effort, publishers=1) as measure:
        yield measure


@contextmanager
def publish_concurrently(where: str, effort: Effort) -> Iterator[Rate]:
    """Events per second that 64 clients publish, each waiting until its own is durable."""
    with _publishing(effort, publishers=PUBLISHERS) as measure:
        yield measure


@contextmanager
def _publishing(effort: Effort, *, publishers: int) -> Iterator[Rate]:
    numbers = itertools.count()

    async def client() -> float:
        return await calls_per_second(
            lambda: store.publish("purchase", f"u{next(numbers) % ENTITIES}", {"amount": 1.5}),
            effort.seconds,
        )

    async def rate() -> float:
        return sum(await asyncio.gather(*(client() for _ in range(publishers))))

    with one_loop(rate) as measure:
        yield measure


async def calls_per_second(call: Call, seconds: float) -> float:
    calls, start = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds:
        await call()
        calls += 1
    return calls / elapsed


@contextmanager
def one_loop(
    measured: Callable[[], Coroutine[Any, Any, Taken]],
    prepare: Callable[[], Coroutine[Any, Any, None]] | None = None,
    of: FeatureStore = store,
) -> Iterator[Callable[[], Taken]]:
    """Run every round on one event loop, in a process configured like serve and worker."""
    with long_runner() as runner:
        if prepare:
            runner.run(prepare())
        try:
            yield lambda: runner.run(measured())
        finally:
            runner.run(of.close())


MEASURES: dict[str, Measuring] = {
    "worker": worker,
    "worker_two_async": worker_two_async,
    "worker_async_and_sync": worker_async_and_sync,
    "worker_many_entities": worker_many_entities,
    "fill": fill,
    "drain": drain,
    "ping": ping,
    "watch": watch,
    "read_one": read_one,
    "read_hundred": read_hundred,
    "read_after_many_events": read_after_many_events,
    "publish": publish,
    "publish_concurrently": publish_concurrently,
}
