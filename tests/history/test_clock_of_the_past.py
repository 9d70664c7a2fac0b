"""The store's clock in a computation of the past shows the moment of that computation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    Worker,
    context,
    entity,
    feature,
)
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
def greeting(store: FeatureStore, user: type) -> Any:
    """Features and a context that depend on the time."""

    @feature(entity=user, trigger="login")
    def last_login(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @feature(entity=user, derived=True)
    async def is_recent(user_id: str) -> bool | None:
        login = await store.get_feature("last_login", user_id)
        return None if login is None else store.clock.now() - login < timedelta(hours=1)

    @feature(entity=user, derived=True)
    def minute(user_id: str) -> int:
        return store.clock.micros() // 60_000_000 % 60

    @context(store)
    async def greeting(user_id: str) -> list[ContextItem]:
        values = (await store.get_features(["is_recent", "minute"], [user_id]))[user_id]
        return [ContextItem(f"{values} at {store.clock.now():%H:%M}")]

    return greeting


async def test_training_rows_see_the_time_that_was_shown_when_the_value_was_served(
    store: FeatureStore, greeting: Any, clock: ManualClock
) -> None:
    await store.publish("login", "u1", timestamp=START)
    await store.drain()
    served = []
    for pause in ("1s", "30m", "40m"):
        clock.advance(pause)
        values = (await store.get_features(["is_recent", "minute"], ["u1"]))["u1"]
        served.append({"user_id": "u1", "timestamp": clock.now(), **values})
    clock.advance("30d")
    rows = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in served]
    for known in (True, False):
        assert await store.get_historical_features(rows, ["is_recent", "minute"], known=known) == (
            served
        )
    assert [row["is_recent"] for row in served] == [True, True, False]
    assert store.clock.now() == clock.now()


async def test_an_as_of_replay_shows_the_time_of_the_assembly(
    store: FeatureStore, greeting: Any, clock: ManualClock
) -> None:
    await store.publish("login", "u1", timestamp=START)
    await store.drain()
    clock.advance("7m")
    made = await greeting("u1")
    clock.advance("2h")
    then = await store.replay(made.context_id, "as_of")
    assert (then.content, then.matches) == (made.content, True)
    now = await store.replay(made.context_id, "live")
    assert str(now.content).endswith("02:07")


async def test_an_audit_computes_served_values_with_the_time_of_their_contexts(
    store: FeatureStore, greeting: Any, clock: ManualClock
) -> None:
    await store.publish("login", "u1", timestamp=START)
    await store.drain()
    await greeting("u1")
    clock.advance("130m")
    await greeting("u1")
    clock.advance("1445m")
    served = (await store.admin.audit()).served
    assert (served.differences, served.equal) == ([], 6)


async def test_a_backfill_shows_the_time_at_which_each_event_was_accepted(
    settings: Settings,
) -> None:
    def declared(name: str) -> FeatureStore:
        store = FeatureStore(settings=settings)

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="login")
        def first(user_id: str, event: ServiceEvent) -> datetime:
            return store.clock.now()

        if name == "new":

            @feature(entity=User, trigger="login")
            async def second(user_id: str, event: ServiceEvent) -> datetime:
                return store.clock.now()

        return store

    async with declared("old") as old:
        await old.publish("login", "u1", timestamp=START)
        await Worker(old).drain()
        handled = await old.get_feature("first", "u1")
        ended = old.clock.now()
    async with declared("new") as new:
        for name in ("first", "second"):
            await new.backfills.run(name, switch=True)
            replayed = await new.get_feature(name, "u1")
            assert handled - timedelta(minutes=5) < replayed < ended


async def test_a_relative_moment_of_a_search_counts_from_the_time_of_the_assembly(
    store: FeatureStore, clock: ManualClock
) -> None:
    Index(store, "notes", embedder="lexical")

    @context(store)
    async def found(question: str) -> list[ContextItem]:
        chunks = await store.search("notes", question, mode="text", as_of="10m")
        return [ContextItem(chunk.text) for chunk in chunks]

    await store.index("notes", "n1", "the first note")
    clock.advance("1h")
    made = await found("note")
    await store.index("notes", "n1", "the second note")
    clock.advance("1h")
    assert made.content == "the first note"
    assert (await store.replay(made.context_id, "as_of")).content == made.content
    assert (await store.replay(made.context_id, "live")).content == "the second note"
