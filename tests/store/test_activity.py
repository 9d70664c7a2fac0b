"""What is known about the values, runs and errors of a declaration."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, context, feature
from headwater.declarations.runtime import runtime_of
from headwater.model.callers import Caller, CallerLimits
from headwater.store import cards as module
from headwater.store.cards import Activity, activity_of
from headwater.store.listings import DeclarationKind
from headwater.testing import ManualClock

TENANT = Caller("acme", limits=CallerLimits(tenant="acme-"))


async def activity(store: FeatureStore, name: str, caller: Caller | None = None) -> Activity:
    registry = runtime_of(store).registry
    kind: DeclarationKind = "feature" if name in registry.features else "context"
    return await activity_of(runtime_of(store), kind, name, caller)


@pytest.fixture
def shop(store: FeatureStore, user: type) -> FeatureStore:
    @feature(entity=user, trigger="purchase", freshness_sla="30s", max_retries=0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=user, refresh="5m", ttl="1m")
    async def rank(user_id: str) -> int:
        return 1

    @context(store)
    async def greeting(user_id: str) -> str:
        return "Hello"

    return store


@pytest.mark.both_environments
async def test_the_ages_of_values_are_those_of_a_sample(
    shop: FeatureStore, clock: ManualClock
) -> None:
    nothing = (await activity(shop, "spend")).values
    assert nothing is not None
    assert (nothing.entities, nothing.values, nothing.is_complete) == (0, 0, True)
    for entity_id in ("acme-1", "acme-2", "bell-1"):
        await shop.publish("purchase", entity_id, {"amount": 1})
        clock.advance(timedelta(seconds=20))
    await shop.drain()
    found = await activity(shop, "spend")
    sample = found.values
    assert sample is not None
    assert (sample.entities, sample.values, sample.is_complete) == (3, 3, True)
    assert (sample.newest_age_ms, sample.median_age_ms, sample.oldest_age_ms) == (
        *(20_000, 40_000, 60_000),
    )
    assert sample.within_sla == 1
    assert found.last_run_at == sample.last_written_at == clock.now()
    of_tenant = (await activity(shop, "spend", TENANT)).values
    assert of_tenant is not None
    assert of_tenant.entities == 2


@pytest.mark.both_environments
async def test_dead_letters_of_a_feature_are_counted(shop: FeatureStore) -> None:
    assert (await activity(shop, "spend")).dead_letters == module.LetterCount(
        count=0, is_complete=True
    )
    for number in range(2):
        await shop.publish("purchase", f"u{number}", {})
    await shop.drain()
    assert (await activity(shop, "spend")).dead_letters == module.LetterCount(
        count=2, is_complete=True
    )
    assert (await activity(shop, "spend", TENANT)).dead_letters is None


async def test_dead_letters_of_another_version_are_counted(shop: FeatureStore) -> None:
    await shop.publish("purchase", "u1", {"amount": 1})
    await shop.drain()
    await shop.backfills.run("spend", switch=True)
    await shop.publish("purchase", "u1", {})
    await shop.drain()
    of_feature = await shop.dead_letters.list(feature="spend")
    letters = await shop.dead_letters.list()
    # The version before is kept fresh for a while, and has letters of its own.
    await shop.dead_letters.discard(*(each.id for each in letters if each not in of_feature))
    assert (await activity(shop, "spend")).dead_letters == module.LetterCount(
        count=1, is_complete=True
    )


async def test_samples_are_bounded(shop: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SAMPLED_ENTITIES", 2)
    monkeypatch.setattr(module, "SAMPLED_LETTERS", 1)
    for number in range(3):
        await shop.publish("purchase", f"u{number}", {"amount": 1})
        await shop.publish("purchase", f"u{number}", {})
    await shop.drain()
    found = await activity(shop, "spend")
    assert found.values is not None
    assert (found.values.entities, found.values.is_complete) == (2, False)
    assert found.dead_letters == module.LetterCount(count=1, is_complete=False)


async def test_a_schedule_has_its_last_and_next_time(
    shop: FeatureStore, clock: ManualClock
) -> None:
    await shop.get_feature("rank", "u1")
    found = await activity(shop, "rank")
    assert found.schedule is not None
    assert found.schedule.last_due <= clock.now() < found.schedule.next_due
    assert found.schedule.next_due - found.schedule.last_due == timedelta(minutes=5)
    assert found.values is not None
    assert (found.values.values, found.values.within_sla) == (1, None)
    clock.advance(timedelta(minutes=2))
    later = (await activity(shop, "rank")).values
    assert later is not None
    assert (later.values, later.expired, later.newest_age_ms) == (0, 1, None)


@pytest.mark.both_environments
async def test_a_refresh_that_fails_has_its_error_for_administrators(
    shop: FeatureStore, user: type, clock: ManualClock
) -> None:
    is_down = True

    @feature(entity=user, refresh="5m", materialize=True)
    async def stock(user_id: str) -> int:
        if is_down:
            raise ConnectionError("the warehouse is down")
        return 1

    await shop.publish("purchase", "u1", {"amount": 1})
    await shop.drain()
    clock.advance(timedelta(minutes=5))
    await shop.drain()
    failure = (await activity(shop, "stock")).refresh_failure
    assert failure is not None
    assert failure.since == clock.now()
    assert failure.error is not None
    assert "the warehouse is down" in failure.error
    reader = Caller("reader", frozenset({"read"}))
    withheld = module.RefreshFailure(since=failure.since, error=None)
    assert (await activity(shop, "stock", reader)).refresh_failure == withheld
    assert (await activity(shop, "stock", TENANT)).refresh_failure is None
    is_down = False
    clock.advance(timedelta(minutes=5))
    await shop.drain()
    assert (await activity(shop, "stock")).refresh_failure is None


@pytest.mark.both_environments
async def test_a_context_last_ran_when_it_was_last_recorded(shop: FeatureStore) -> None:
    assert (await activity(shop, "greeting")).last_run_at is None
    await shop.assemble("greeting", {"user_id": "u1"})
    (listed,) = (await shop.list_contexts()).contexts
    assert (await activity(shop, "greeting")).last_run_at == listed.created_at
    assembler = Caller("assembler", frozenset({"read", "assemble"}))
    assert (await activity(shop, "greeting", assembler)).last_run_at is None
    assert (await activity(shop, "greeting", TENANT)).last_run_at is None
