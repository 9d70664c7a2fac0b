"""Windows: a worker that folds into them, and reads of their values, beside plain features."""

import itertools
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from bench.case import Effort
from bench.floors import ENTITIES, Measuring, Rate
from bench.ours import calls_per_second, one_loop
from bench.window_features import PLAIN_NAMES, WINDOW_NAMES, store
from headwater import ServiceEvent

AT_ONCE = 1_000  # events, the most that one call may publish
READ = "u0"
# One event in each hop of each window, so that the state of a window is full.
PAST = (
    *(timedelta(days=number) for number in range(30, 7, -1)),
    *(timedelta(hours=6 * number) for number in range(28, 0, -1)),
    *(timedelta(minutes=number) for number in range(60, 0, -1)),
)
AMOUNTS = random.Random(27)


def event(event_type: str, entity_id: str, age: timedelta = timedelta()) -> ServiceEvent:
    return ServiceEvent(
        event_type=event_type,
        entity_id=entity_id,
        payload={"amount": round(AMOUNTS.uniform(1, 200), 2)},
        timestamp=datetime.now(UTC) - age,
    )


async def handle(events: list[ServiceEvent]) -> None:
    for start in range(0, len(events), AT_ONCE):
        await store.bus.publish_many(events[start : start + AT_ONCE], dedup=False)
    await store.drain()


@contextmanager
def worker(where: str, effort: Effort) -> Iterator[Rate]:
    """Events per second that fold into 3 windows with 4 aggregates each, whose tiles are full."""
    with _working(effort, "purchase") as measure:
        yield measure


@contextmanager
def plain_worker(where: str, effort: Effort) -> Iterator[Rate]:
    """The same through a read-modify-write handler."""
    with _working(effort, "plain_purchase") as measure:
        yield measure


@contextmanager
def _working(effort: Effort, event_type: str) -> Iterator[Rate]:
    numbers = itertools.count()
    entities = effort.of(ENTITIES, ENTITIES, 10)

    async def prepare() -> None:
        ages = PAST[:: len(PAST) // 10]
        await handle(
            [event(event_type, f"u{user}", age) for age in ages for user in range(entities)]
        )

    async def rate() -> float:
        chosen = itertools.islice(numbers, effort.events)
        events = [event(event_type, f"u{number % entities}") for number in chosen]
        for start in range(0, len(events), AT_ONCE):
            await store.bus.publish_many(events[start : start + AT_ONCE], dedup=False)
        begun = time.perf_counter()
        await store.drain()
        return effort.events / (time.perf_counter() - begun)

    with one_loop(rate, prepare, store) as measure:
        yield measure


@contextmanager
def read(where: str, effort: Effort) -> Iterator[Rate]:
    """get_features of 12 windows of one entity, whose tiles are full and whose values are kept."""
    with _reading(effort, WINDOW_NAMES) as measure:
        yield measure


@contextmanager
def plain_read(where: str, effort: Effort) -> Iterator[Rate]:
    """get_features of 12 plain features of one entity, per second."""
    with _reading(effort, PLAIN_NAMES) as measure:
        yield measure


@contextmanager
def _reading(effort: Effort, names: list[str]) -> Iterator[Rate]:
    # The plain features are read from an entity without windows: all its values are read together.
    entity_id = READ if names is WINDOW_NAMES else "u1"

    async def prepare() -> None:
        await handle([event("purchase", READ, age) for age in PAST])
        await handle([event("profile", "u1")])

    async def rate() -> float:
        return await calls_per_second(
            lambda: store.get_features(names, [entity_id]), effort.seconds
        )

    with one_loop(rate, prepare, store) as measure:
        yield measure


MEASURES: dict[str, Measuring] = {
    "worker": worker,
    "plain_worker": plain_worker,
    "read": read,
    "plain_read": plain_read,
}
