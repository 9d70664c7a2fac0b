"""Contexts that read an entity by other verbs than its features are found and forgotten with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater import Context, ContextItem, FeatureStore, ServiceEvent, context, entity
from headwater.features import call_scope as frames
from headwater.features.call_scope import MOST_SOURCES
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

Read = Callable[[FeatureStore, str, str], Awaitable[object]]
"""A read of a user, whose earlier context is given as well."""


def rows(store: FeatureStore, *ids: str) -> list[dict[str, Any]]:
    return [{"user_id": each, "timestamp": store.clock.now()} for each in ids]


READS: dict[str, Read] = {
    "past": lambda store, of, _: store.get_feature_history("address", of),
    "frame": lambda store, of, _: store.get_historical_features(rows(store, of), ["address"]),
    "known": lambda store, of, _: store.get_historical_features(
        rows(store, of), ["address"], known=True
    ),
    "computed": lambda store, of, _: store.get_historical_features(
        rows(store, f"friend of {of}"), ["neighbour"]
    ),
    "events": lambda store, of, _: store.bus.list(entity_id=of),
    "type": lambda store, of, _: store.bus.list(event_type=f"called by {of}"),
    "letters": lambda store, of, _: store.dead_letters.list(entity_id=of),
    "context": lambda store, _, earlier: store.get_context_at(earlier),
    "get": lambda store, _, earlier: store.get_record(earlier),
    "show": lambda store, _, earlier: store.replay(earlier),
    "reassemble": lambda store, _, earlier: store.replay(earlier, "reassemble"),
    "as_of": lambda store, _, earlier: store.replay(earlier, "as_of"),
    "live": lambda store, _, earlier: store.replay(earlier, "live"),
    "explain": lambda store, _, earlier: store.records.explain(earlier),
    "causes": lambda store, _, earlier: store.records.causes(earlier),
    "find": lambda store, of, _: store.records.find(entity="User", entity_id=of),
    "id": lambda store, of, _: store.records.find(feature="address", entity_id=of),
    "kept": lambda store, of, _: store.get_feature("quoted", of),
    "nested": lambda store, of, earlier: store.assemble(
        "report", {"how": "context", "of": of, "earlier": earlier}
    ),
}
EVERYTHING: dict[str, Read] = {
    "query": lambda store, of, _: store.get_historical_features(
        "SELECT DISTINCT entity_id AS user_id, TIMESTAMPTZ '2030-01-01 00:00:00Z' AS timestamp "
        f"FROM events WHERE entity_id = '{of}'",
        ["address"],
    ),
    "groups": lambda store, *_: store.dead_letters.groups(),
    "audit": lambda store, *_: store.admin.audit(),
}


@pytest.fixture
def street(store: FeatureStore) -> FeatureStore:
    """Return a store with users, and a context that reads a user in a chosen way."""

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Product:
        product_id: str

    @store.feature(User, trigger="moved", max_retries=0)
    async def address(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["address"])

    @store.feature(Product, trigger="sale", default=0)
    async def sales(product_id: str, event: ServiceEvent) -> int:
        return 1

    @store.feature(User, derived=True)
    async def neighbour(user_id: str) -> str:
        return str(await store.get_feature("address", user_id.removeprefix("friend of ")))

    @store.feature(User, ttl="1h")
    async def quoted(user_id: str) -> str:
        page = await store.records.find(entity="User", entity_id=user_id, name="plain")
        return str((await store.get_context_at(page.contexts[0].context_id)).content)

    @store.feature(User)
    async def oldest(user_id: str) -> str:
        return str(await store.get_feature_history("address", "u1"))

    declare_contexts(store)
    return store


def declare_contexts(store: FeatureStore) -> None:
    @context(store)
    async def plain(user_id: str) -> ContextItem:
        return ContextItem.template("At {address}.")

    @context(store)
    async def behind(user_id: str) -> ContextItem:
        return ContextItem.template("{oldest}")

    @context(store)
    async def report(how: str, of: str, earlier: str) -> str:
        return f"{await (READS | EVERYTHING)[how](store, of, earlier)!r}"


async def settle(street: FeatureStore) -> dict[str, Context]:
    """Let two users and a product have events, dead letters and contexts."""
    for user_id in ("u1", "u2"):
        await street.publish("moved", user_id, {"address": f"{user_id}, Elm Street"})
        await street.publish("moved", user_id, {})
        await street.publish(f"called by {user_id}", user_id)
    await street.publish("sale", "u1")
    await street.drain()
    return {of: await street.assemble("plain", {"user_id": of}) for of in ("u1", "u2")}


@pytest.mark.parametrize("how", READS)
async def test_contexts_are_found_and_forgotten_however_they_read_an_entity(
    how: str, street: FeatureStore
) -> None:
    earlier = await settle(street)

    async def report(of: str) -> str:
        params = {"how": how, "of": of, "earlier": earlier[of].context_id}
        return (await street.assemble("report", params)).context_id

    made = {of: [await report(of), await report(of)] for of in earlier}
    found = await street.records.find(entity="User", entity_id="u1", name="report")
    assert set(made["u1"]) <= {each.context_id for each in found.contexts}
    assert not set(made["u2"]) & {each.context_id for each in found.contexts}
    of_product = await street.records.find(entity="Product", entity_id="u1", name="report")
    # An event of a type that triggers no feature may be about any entity.
    expected = made["u1"] if how in ("events", "type", "id") else []
    assert {each.context_id for each in of_product.contexts} == set(expected)
    await street.admin.forget("User", "u1", reason="request 12")
    for context_id in made["u1"]:
        assert (await street.get_context_at(context_id)).content is None
    for context_id in made["u2"]:
        assert (await street.get_context_at(context_id)).content is not None


@pytest.mark.parametrize("how", EVERYTHING)
async def test_contexts_that_may_have_read_anyone_are_found_and_forgotten_with_anyone(
    how: str, street: FeatureStore
) -> None:
    await settle(street)
    made = await street.assemble("report", {"how": how, "of": "u1", "earlier": ""})
    for wanted in ({"entity": "User", "entity_id": "u2"}, {"feature": "address"}):
        found = await street.records.find(name="report", **wanted)  # type: ignore[arg-type]
        assert [each.context_id for each in found.contexts] == [made.context_id]
    await street.admin.forget("User", "u2", reason="request 12")
    assert (await street.get_context_at(made.context_id)).content is None


async def test_more_rows_than_a_record_lists_count_as_everyone(
    street: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frames, "MOST_SOURCES", 3)

    @context(street)
    async def training(count: int) -> str:
        ids = [f"u{number}" for number in range(count)]
        await street.get_historical_features(rows(street, *ids), ["address"])
        return "trained"

    few, many = await training(3), await training(4)
    for entity_id, expected in (("u2", [few, many]), ("unread", [many])):
        found = await street.records.find(entity="User", entity_id=entity_id, oldest_first=True)
        assert [each.context_id for each in found.contexts] == [
            each.context_id for each in expected
        ]
    assert MOST_SOURCES > 1_000


async def test_a_context_that_uses_an_earlier_one_is_forgotten_with_what_that_one_read(
    street: FeatureStore,
) -> None:
    await settle(street)

    earlier = await street.assemble("behind", {"user_id": "u2"})

    @context(street)
    async def letter() -> ContextItem:
        return ContextItem(earlier.content, source=earlier)

    made = await letter()
    await street.admin.forget("User", "u1", reason="request 12")
    assert (await street.get_context_at(made.context_id)).content is None
