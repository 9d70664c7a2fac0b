"""What was served at a moment is what ``known=True`` gives for that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.testing import ManualClock, temporary
from tests.effort import scaled

START = datetime(2026, 1, 1, tzinfo=UTC)


class Step(NamedTuple):
    """An event, a write or a pause, before which the clock is advanced by some seconds."""

    verb: str
    user_id: str
    seconds: int
    amount: int
    late: int


def declare(store: FeatureStore, clock: ManualClock) -> None:
    """Features whose values are stored, in every way."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("total", user_id)) + int(event.payload["amount"])

    @feature(entity=User, trigger="buy", order="event_time")
    def last(user_id: str, event: ServiceEvent) -> dict[str, Any]:
        return event.payload

    @feature(entity=User, trigger="buy", ttl="90s")
    def recent(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @feature(entity=User, trigger="never")
    def given_score(user_id: str, event: ServiceEvent) -> float | None: ...

    @feature(entity=User, refresh="1m", materialize=True)
    async def rank(user_id: str) -> int:
        return -int(await store.get_feature("total", user_id))

    @feature(entity=User, refresh="1m")
    def lazy(user_id: str) -> str:
        return f"{clock.now():%H:%M:%S}"

    declare_on_demand(store, User, clock)


def declare_on_demand(store: FeatureStore, user: type, clock: ManualClock) -> None:
    """Features that are computed by reads."""

    @feature(entity=user, ttl="80s")
    async def cached(user_id: str) -> str:
        return f"{await store.get_feature('last', user_id)} at {clock.now():%H:%M:%S}"

    @feature(entity=user, log=True)
    async def logged(user_id: str) -> tuple[int, datetime]:
        return int(await store.get_feature("total", user_id)), clock.now()

    @feature(entity=user, derived=True)
    async def tier(user_id: str) -> str | None:
        values = (await store.get_features(["total", "recent"], [user_id]))[user_id]
        return None if values["recent"] is None else "gold" if values["total"] > 9 else "silver"

    @feature(entity=user, derived=True, ttl="70s")
    async def slow_tier(user_id: str) -> str:
        return f"{await store.get_feature('tier', user_id)} {user_id}"

    @feature(entity=user, template="{tier} {total}", default="new")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="[{line}] {rank} {given_score} {logged}")
    def page(user_id: str) -> str: ...  # type: ignore[empty-body]


async def take(store: FeatureStore, clock: ManualClock, step: Step) -> None:
    clock.advance(timedelta(seconds=step.seconds))
    if step.verb == "buy":
        moment = clock.now() - timedelta(seconds=step.late)
        payload = {"amount": step.amount}
        await store.publish("buy", step.user_id, payload, timestamp=moment)
    elif step.verb == "set":
        value = None if step.amount == 3 else step.amount / 2
        moment = clock.now() - timedelta(seconds=step.late)
        await store.set_feature("given_score", step.user_id, value, as_of=moment)
    await store.drain()


async def check(store: FeatureStore, clock: ManualClock, steps: Sequence[Step]) -> None:
    """Serve all values after each step, then compare them with history."""
    names = list(runtime_of(store).registry.features)
    served: list[dict[str, Any]] = []
    for step in steps:
        await take(store, clock, step)
        # A write at this very moment would count as known.
        clock.advance("1s")
        for user_id in ("u1", "u2"):
            (row,) = await store.get_feature_values(names, [user_id])
            values = {name: value.value for name, value in row.items()}
            served.append({"user_id": user_id, "timestamp": clock.now(), **values})
        clock.advance("1s")
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in served]
    found = await store.get_historical_features(frame, names, known=True)
    for row, expected in zip(found, served, strict=True):
        for name in names:
            assert row[name] == expected[name], (name, row["user_id"], row["timestamp"])


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["buy", "buy", "set", "wait"]),
        st.sampled_from(["u1", "u2"]),
        st.integers(1, 100),
        st.integers(1, 9),
        st.sampled_from([0, 0, 30, 300]),
    ),
    min_size=1,
    max_size=6,
)


# Each example is a whole store.
@settings(max_examples=scaled(6), deadline=None)
@given(STEPS)
def test_known_values_are_the_ones_that_were_served(steps: list[Step]) -> None:
    async def run() -> None:
        clock = ManualClock(START)
        store = FeatureStore()
        declare(store, clock)
        async with temporary(store, clock=clock):
            await check(store, clock, steps)

    asyncio.run(run())


@pytest.mark.both_environments
async def test_known_values_are_the_ones_that_were_served_in_both_environments(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare(store, clock)
    steps = [
        Step("buy", "u1", 5, 4, 0),
        Step("set", "u1", 5, 3, 0),
        Step("buy", "u1", 40, 8, 30),
        Step("set", "u1", 50, 5, 0),
        Step("wait", "u1", 60, 1, 0),
        Step("set", "u1", 20, 7, 300),
        Step("buy", "u2", 1, 1, 300),
    ]
    await check(store, clock, steps)
