"""`store.test_feature` runs one function without storing or publishing anything."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater import FeatureStore, Index, ServiceEvent, feature
from headwater.errors import EventError, FunctionRaisedError, InvalidInputError

EARLIER = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def declared(store: FeatureStore, user: type) -> FeatureStore:
    """A store with a feature of each kind."""
    Index(store, "notes", embedder="lexical")

    @feature(entity=user, trigger=["purchase", "refund"], default=0.0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("total_spend", user_id)
        await store.set_feature("level", "other", 3)
        await store.index("notes", f"note-{user_id}", "bought something")
        await store.publish("thanks", user_id, {"for": event.event_id})
        event.payload["amount"] *= 1 if event.event_type == "purchase" else -1
        return float(before + event.payload["amount"])

    @feature(entity=user, trigger="purchase", window=["1h", "7d"], aggregate="sum")
    def spent(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=user, trigger="purchase", order="event_time")
    def last_item(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["item"])

    store.stored_feature("level", int, entity=user, default=0)

    @feature(entity=user, refresh="1h", materialize=True)
    async def doubled(user_id: str) -> float:
        return 2 * float(await store.get_feature("total_spend", user_id))

    query = "SELECT 'ada' AS user_id, 4 AS value"
    store.sql_feature("orders", int, entity=user, sql=query, refresh="1h", materialize=True)

    @feature(entity=user, log=True)
    def shout(user_id: str) -> str:
        return user_id.upper()

    store.template_feature("blurb", entity=user, template="{shout} spent {total_spend}")

    @feature(entity=user, trigger="purchase", max_retries=3)
    def broken(user_id: str, event: ServiceEvent) -> int:
        return 1 // 0

    @feature(entity=user, trigger="closing")
    async def draining(user_id: str, event: ServiceEvent) -> None:
        await store.drain()

    return store


async def _everything(store: FeatureStore) -> Any:
    """All that a run of a function might store."""
    names = ["total_spend", "level", "doubled", "orders", "shout", "last_item"]
    history = [
        [value.cause for value in await store.get_feature_history(name, entity_id)]
        for name in (*names, "spent")
        for entity_id in ("ada", "other")
    ]
    stored = await store.get_features(["total_spend", "level", "spent_sum_7d"], ["ada", "other"])
    return (
        history,
        stored,
        len(await store.bus.list(limit=1000)),
        await store.dead_letters.list(),
        (await store.indexes.list())[0].documents,
        sum(lag.waiting for lag in await store.admin.lag()),
    )


@pytest.mark.both_environments
async def test_one_handler_runs_without_storing_anything(declared: FeatureStore) -> None:
    """The counts of all places are the same before and after."""
    store = declared
    await store.set_feature("total_spend", "ada", 20.0)
    before = await _everything(store)
    payload = {"amount": 5.0, "item": "pen"}

    trial = await store.test_feature("total_spend", "ada", payload, event_type="purchase")
    window = await store.test_feature("spent", "ada", payload)
    values = {
        name: (await store.test_feature(name, "ada")).value
        for name in ("doubled", "orders", "shout", "blurb")
    }
    with pytest.raises(FunctionRaisedError, match="division"):
        await store.test_feature("broken", "ada", payload)

    assert await _everything(store) == before
    assert trial.value == 25.0
    assert [(w.feature, w.entity_id, w.value, w.online) for w in trial.writes] == [
        ("level", "other", 3, True),
        ("total_spend", "ada", 25.0, True),
    ]
    assert [(d.index, d.document, d.text) for d in trial.documents] == [
        ("notes", "note-ada", "bought something")
    ]
    (published,) = trial.published
    assert trial.event is not None
    assert (published.event_type, published.payload) == ("thanks", {"for": trial.event.event_id})
    assert payload == {"amount": 5.0, "item": "pen"}
    assert (window.value, window.windows) == (5.0, {"spent_sum_1h": 5.0, "spent_sum_7d": 5.0})
    assert values == {"doubled": 40.0, "orders": 4, "shout": "ADA", "blurb": "ADA spent 20.0"}


async def test_a_window_counts_what_it_has_and_the_event(declared: FeatureStore) -> None:
    store = declared
    await store.publish("purchase", "ada", {"amount": 2.0, "item": "pen"})
    await store.drain()

    trial = await store.test_feature("spent", "ada", {"amount": 5.0})

    assert trial.windows["spent_sum_1h"] == 7.0
    assert await store.get_feature("spent_sum_1h", "ada") == 2.0


async def test_an_event_of_the_past_would_be_history_only(declared: FeatureStore) -> None:
    store = declared
    await store.set_feature("last_item", "ada", "book")

    trial = await store.test_feature("last_item", "ada", {"item": "pen"}, timestamp=EARLIER)

    (write,) = trial.writes
    assert (write.value, write.as_of, write.online) == ("pen", EARLIER, False)


@pytest.mark.parametrize(
    ("name", "payload", "event_type", "problem"),
    [
        ("total_spend", {"amount": 1}, None, "choose one of these types with event_type or --type"),
        ("spent", {"amount": 1}, "visit", "is not triggered by 'visit', but by purchase"),
        ("spent", None, None, "is triggered by purchase; give an event"),
        ("shout", {"amount": 1}, None, "has no trigger; test it without an event"),
        ("level", None, None, "has no function: other handlers and set_feature write it"),
    ],
)
async def test_what_does_not_fit_is_named(
    declared: FeatureStore, name: str, payload: Any, event_type: str | None, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await declared.test_feature(name, "ada", payload, event_type=event_type)


async def test_verbs_that_would_store_at_once_are_refused(declared: FeatureStore) -> None:
    with pytest.raises(FunctionRaisedError, match="drain is not allowed in the test of a feature"):
        await declared.test_feature("draining", "ada", {})


async def test_an_event_that_could_not_be_published_is_refused(declared: FeatureStore) -> None:
    late = datetime(2090, 1, 1, tzinfo=UTC)
    with pytest.raises(EventError, match="is in the future"):
        await declared.test_feature("spent", "ada", {"amount": 1}, timestamp=late)
