"""Finding things by a few characters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headwater import FeatureStore, Index, ServiceEvent, context, entity, feature, retriever
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.callers import Caller, CallerLimits, current_caller, set_caller
from headwater.store.finding import find, match_of


@contextmanager
def calling_as(*scopes: Any, **limits: Any) -> Iterator[None]:
    """Run the code inside for a caller with scopes and limits."""
    set_caller(Caller("tester", frozenset(scopes), CallerLimits(**limits) if limits else None))
    try:
        yield
    finally:
        set_caller(None)


async def found(store: FeatureStore, text: str, limit: int = 20) -> list[tuple[str, str, str]]:
    page = await find(runtime_of(store), text, limit, current_caller())
    return [(each.kind, each.name, each.match) for each in page.found]


@pytest.fixture
def shop(store: FeatureStore, user: type) -> FeatureStore:
    @entity(store)
    class Order:
        order_id: int

    Index(store, "spending_tips", embedder="lexical")
    Index(store, "letters", embedder="lexical")

    @feature(entity=user, trigger="purchase", default=0.0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        """Sum of all purchases.

        In euros."""
        return 1.0

    @feature(entity=Order, trigger="purchase")
    async def spend_of_order(order_id: int, event: ServiceEvent) -> float:
        return 1.0

    @retriever(store, index="letters")
    async def letters_of(query: str) -> None: ...

    @context(store)
    async def spend(user_id: str) -> str:
        return f"You spent {await store.get_feature('total_spend', user_id)}."

    return store


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("total_spend", "total_spend", "exact"),
        ("Total_Spend", "total_spend", "exact"),
        ("total_spend", "tot", "prefix"),
        ("total_spend", "spend", "word"),
        ("total_spend", "pend", "substring"),
        ("xspend_spend", "spend", "word"),
        ("total_spend", "tsp", "scattered"),
        ("total_spend", "t s p", "scattered"),
        ("total_spend", "ts", None),
        ("total_spend", "spt", None),
        ("a.*b", ".*", "substring"),
    ],
)
def test_a_name_matches_by_its_parts(name: str, text: str, match: str | None) -> None:
    assert match_of(name, text) == match


async def test_declarations_are_found_the_best_match_first(shop: FeatureStore) -> None:
    assert await found(shop, "spend") == [
        ("context", "spend", "exact"),
        ("index", "spending_tips", "prefix"),
        ("feature", "spend_of_order", "prefix"),
        ("feature", "total_spend", "word"),
    ]
    assert await found(shop, "SPEND", limit=1) == [("context", "spend", "exact")]
    assert await found(shop, "purch") == [("event", "purchase", "prefix")]
    page = await find(runtime_of(shop), "total_spend", 1, None)
    assert (page.found[0].description, page.found[0].entity) == ("Sum of all purchases.", "User")


async def test_a_typo_finds_the_most_similar_names(shop: FeatureStore) -> None:
    assert ("feature", "total_spend", "similar") in await found(shop, "totl_spnedd")


@pytest.mark.both_environments
async def test_stored_things_are_found_by_their_ids(shop: FeatureStore) -> None:
    await shop.publish("purchase", "17")
    await shop.drain()
    await shop.index("letters", "17", "Dear Ada")
    made = await shop.assemble("spend", {"user_id": "17"})
    assert sorted(await found(shop, " 17 ")) == [
        ("document", "17", "exact"),
        ("entity_id", "17", "exact"),
        ("entity_id", "17", "exact"),
    ]
    assert await found(shop, "18") == []
    record = ("record", made.context_id)
    bare = made.record_hash.removeprefix("sha256:")
    for ref in (made.context_id, made.context_id.upper(), made.record_hash, bare):
        assert await found(shop, ref) == [(*record, "exact")]
    for beginning in (made.context_id[:8], bare[:9], made.record_hash[:20]):
        assert (*record, "prefix") in await found(shop, beginning)
    assert await found(shop, bare[:5]) == []


@pytest.mark.both_environments
async def test_entities_are_suggested_by_the_beginning_of_their_ids(shop: FeatureStore) -> None:
    for entity_id in ("31", "3", "307", "4", "t1:31", "t2:31"):
        await shop.publish("purchase", entity_id)
    await shop.drain()
    await shop.index("letters", "31", "Dear Ada")

    async def suggested(text: str) -> list[tuple[str | None, str]]:
        page = await find(runtime_of(shop), text, 20, current_caller(), "entity_id")
        return [(each.entity, each.name) for each in page.found]

    users = [("User", each) for each in ("3", "31", "307")]
    orders = [("Order", each) for each in ("3", "31", "307")]
    assert sorted(await suggested("3")) == sorted(users + orders)
    assert await suggested("t") == [("User", "t1:31"), ("User", "t2:31")]
    assert await suggested("5") == []
    with calling_as("read", tenant="t1:"):
        assert await suggested("t1:") == [("User", "t1:31")]
        assert await suggested("t") == await suggested("t2") == []


@pytest.mark.both_environments
async def test_a_caller_finds_only_what_it_may_see(shop: FeatureStore) -> None:
    for entity_id in ("1", "2"):
        await shop.publish("purchase", entity_id)
    await shop.drain()
    await shop.index("letters", "1", "Dear Ada")
    mine, other = [await shop.assemble("spend", {"user_id": each}) for each in ("1", "2")]
    with calling_as("read", "records", entities=frozenset({"User"}), tenant="1"):
        assert await found(shop, "spend") == [
            ("context", "spend", "exact"),
            ("feature", "total_spend", "word"),
        ]
        assert await found(shop, "1") == [("entity_id", "1", "exact")]
        assert await found(shop, "2") == []
        assert await found(shop, mine.context_id) == [("record", mine.context_id, "exact")]
        assert await found(shop, other.record_hash) == []
    with calling_as("assemble"):
        assert await found(shop, "spend") == [("context", "spend", "exact")]
        assert await found(shop, "1") == []
        assert await found(shop, mine.context_id) == []


async def test_an_unavailable_store_is_named_and_the_rest_is_found(shop: FeatureStore) -> None:
    await shop.open()
    engine = runtime_of(shop).current()
    assert engine is not None
    await engine.backends.lifecycle.close()
    page = await find(runtime_of(shop), "total_spend", 20, None)
    assert [each.name for each in page.found] == ["total_spend"]
    assert "entity_id" in page.unavailable


@pytest.mark.parametrize("text", ["", "  ", "x" * 257])
async def test_an_empty_or_long_text_is_refused(shop: FeatureStore, text: str) -> None:
    with pytest.raises(InvalidInputError, match="give 1 to 256"):
        await found(shop, text)
