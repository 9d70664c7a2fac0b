"""Forgetting an entity: nothing of it is left, other entities keep everything."""

from __future__ import annotations

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity
from headwater.errors import CallerLimitError, InvalidInputError, UnknownNameError
from headwater.model.admin import ForgetReport, MentionCounts
from headwater.model.callers import Caller, CallerLimits, set_caller


@pytest.fixture
def shop(store: FeatureStore) -> FeatureStore:
    """Return a store with two entities, a feature that fails for some events, and a context."""

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Product:
        product_id: str

    @store.feature(User, trigger="purchase", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("total", user_id) or 0.0
        return float(before + event.payload["amount"])

    @store.feature(Product, trigger="sale", default=0)
    async def sales(product_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("sales", product_id)) + 1

    @context(store, max_tokens=100)
    async def support(user_id: str) -> list[ContextItem]:
        return [ContextItem.template("Spent: {total}")]

    return store


async def _fill(shop: FeatureStore) -> list[str]:
    """Publish events of two users and a product, and return the contexts of both users."""
    for user_id in ("7", "8"):
        await shop.publish("purchase", user_id, {"amount": 40.0})
        await shop.publish("purchase", user_id, {"amount": 2.0})
        await shop.publish("purchase", user_id, {})
    await shop.publish("sale", "7")
    await shop.drain()
    contexts = [await shop.assemble("support", {"user_id": user_id}) for user_id in ("7", "8")]
    return [each.context_id or "" for each in contexts]


_ALL = ForgetReport(
    values=1,
    history=2,
    events=3,
    dead_letters=1,
    records=1,
    waiting=0,
    mentions=MentionCounts(),
)
_NOTHING = ForgetReport(
    values=0,
    history=0,
    events=0,
    dead_letters=0,
    records=0,
    waiting=0,
    mentions=MentionCounts(),
)


@pytest.mark.both_environments
async def test_nothing_of_a_forgotten_entity_is_left_and_others_keep_everything(
    shop: FeatureStore,
) -> None:
    forgotten, kept = await _fill(shop)
    counted = await shop.admin.forget("User", "7", reason="request 12", dry_run=True)
    report = await shop.admin.forget("User", "7", reason="request 12")
    assert (counted.dry_run, report) == (True, _ALL)
    assert await shop.admin.forget("User", "7", reason="request 12") == _NOTHING

    assert await shop.get_feature("total", "7") is None
    assert await shop.get_feature("total", "8") == 42.0
    assert await shop.get_feature_history("total", "7") == []
    assert len(await shop.get_feature_history("total", "8")) == 2
    assert await shop.get_feature("sales", "7") == 1
    assert {event.event.event_type for event in await shop.bus.list(entity_id="7")} == {"sale"}
    assert [letter.event.entity_id for letter in await shop.dead_letters.list()] == ["8"]
    assert (await shop.get_context_at(forgotten)).content is None
    assert (await shop.get_context_at(kept)).content == "Spent: 42.0"
    assert (await shop.records.verify(forgotten)).ok
    assert not (await shop.get_context_at(forgotten)).lineage.features[0].value

    await shop.admin.rebuild()
    assert await shop.get_feature("total", "7") is None
    await shop.admin.forget("User", "7", reason="request 12", allow_return=True)
    await shop.publish("purchase", "7", {"amount": 1.0})
    await shop.drain()
    assert await shop.get_feature("total", "7") == 1.0


async def test_the_audit_log_has_a_hash_in_place_of_the_id(shop: FeatureStore) -> None:
    await shop.admin.forget("User", "ada", reason="request 12", dry_run=True)
    await shop.admin.forget("User", "ada", reason="request 12")
    (entry,) = (await shop.audit_log(action="admin.forget")).entries
    assert (entry.target, entry.outcome) == ("User", "done")
    assert entry.parameters["id_sha256"].startswith("fdee430d40bd57de")


async def test_a_forgotten_entity_needs_a_declaration_and_a_reason(shop: FeatureStore) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'User'"):
        await shop.admin.forget("Usr", "7", reason="request 12")
    with pytest.raises(InvalidInputError, match="reason"):
        await shop.admin.forget("User", "7", reason=" ")


async def test_a_limited_key_forgets_only_its_own_entities(shop: FeatureStore) -> None:
    set_caller(Caller("ops", limits=CallerLimits(tenant="acme:")))
    with pytest.raises(CallerLimitError):
        await shop.admin.forget("User", "7", reason="request 12")


@pytest.mark.both_environments
async def test_events_with_an_id_that_the_type_of_the_entity_refuses_are_erased(
    store: FeatureStore,
) -> None:
    @entity(store)
    class Device:
        device_id: int

    @store.feature(Device, trigger="seen", default=0, max_retries=0)
    async def times(device_id: int, event: ServiceEvent) -> int:
        return int(await store.get_feature("times", device_id)) + 1

    for entity_id in ("7", "07"):
        await store.publish("seen", entity_id)
    await store.drain()
    report = await store.admin.forget("Device", "07", reason="request 12")
    assert (report.events, report.dead_letters) == (1, 1)
    assert [each.event.entity_id for each in await store.bus.list()] == ["7"]
    assert await store.dead_letters.list() == []
    assert await store.get_feature("times", 7) == 1
