"""A backfill that would lack pruned events or values is refused, and names the horizon."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackfillRefusedError
from headwater.model.catalog import Horizons
from headwater.settings.schema import Settings
from tests.engine.support import query

pytestmark = pytest.mark.both_environments
TOLERANCE = timedelta(milliseconds=1)


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[FeatureStore]:
    # Not after the next events of a test.
    settings = settings.replace(ingest={"future_tolerance": "1ms"})
    async with FeatureStore(settings=settings) as store:

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy", default=0)
        async def bought(user_id: str, event: ServiceEvent) -> int:
            return int(await store.get_feature("bought", user_id)) + 1

        @feature(entity=User, trigger="buy", default=0)
        async def doubled(user_id: str, event: ServiceEvent) -> int:
            return 2 * int(await store.get_feature("bought", user_id))

        yield store


async def buy(store: FeatureStore, times: int) -> datetime:
    """Publish events and return the time of the last one."""
    for _ in range(times):
        event = await store.publish("buy", "u1", {})
        await store.drain()
    return event.timestamp


async def pruned(store: FeatureStore) -> Horizons:
    return (await (await runtime_of(store).open()).backends.catalog.load()).pruned


async def prune_events(store: FeatureStore) -> datetime:
    """Prune all events so far and return the horizon."""
    await store.admin.prune(events="1ms")
    horizon = (await pruned(store)).events
    assert horizon is not None
    return horizon


async def test_a_backfill_since_a_time_before_the_horizon_of_events_is_refused_with_the_horizon(
    store: FeatureStore,
) -> None:
    since = await buy(store, 3)
    horizon = await prune_events(store)
    await buy(store, 3)
    earliest = horizon + TOLERANCE
    remedy = rf"events before {horizon.isoformat()}.*--since {earliest.isoformat()} or later"
    for asked in (since, horizon, None):
        with pytest.raises(BackfillRefusedError, match=remedy.replace("+", r"\+")):
            await store.backfills.run("bought", since=asked)
    assert await store.get_feature("bought", "u1") == 6
    await store.backfills.run("bought", since=earliest, switch=True)
    assert await store.get_feature("bought", "u1") == 6
    values = [each.value for each in await store.get_feature_history("bought", "u1")]
    assert values == [6, 5, 4, 3, 2, 1]


async def test_values_of_before_a_time_are_not_added_from_less_than_all_events(
    store: FeatureStore,
) -> None:
    since = await buy(store, 2)
    horizon = await prune_events(store)
    until = await buy(store, 1)
    for asked in (since, None):
        with pytest.raises(BackfillRefusedError, match=str(horizon.date())):
            await store.backfills.run("bought", since=asked, until=until)


async def test_a_backfill_is_refused_where_the_values_that_it_begins_with_were_pruned(
    store: FeatureStore,
) -> None:
    since = await buy(store, 3)
    await store.admin.prune(history="1ms")
    horizon = (await pruned(store)).history
    assert horizon is not None
    with pytest.raises(BackfillRefusedError, match=rf"history before {horizon.date()}"):
        await store.backfills.run("bought", since=since)
    await store.backfills.run("bought", switch=True)  # from all events, which are still there
    assert await store.get_feature("bought", "u1") == 3


async def test_a_replayed_handler_does_not_read_other_features_of_before_the_horizon(
    store: FeatureStore,
) -> None:
    await buy(store, 3)
    await store.admin.prune(history="1ms")
    with pytest.raises(BackfillRefusedError, match=r"reads 'bought' of .*, and history before"):
        await store.backfills.run("doubled")


async def test_events_are_all_there_for_a_backfill_until_the_first_one_is_pruned(
    store: FeatureStore,
) -> None:
    await buy(store, 3)
    assert (await store.admin.prune(events="30d")).events is not None
    assert await pruned(store) == Horizons()
    await store.backfills.run("bought", switch=True)
    assert await store.get_feature("bought", "u1") == 3


async def test_a_backfill_in_progress_is_resumed_after_pruning_with_all_its_events(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await buy(store, 3)
    offline = (await runtime_of(store).open()).backends.offline

    async def failing(*_: object, **__: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(offline, "export_events", failing)
        with pytest.raises(RuntimeError, match="killed"):
            await store.backfills.run("bought")
    report = await store.admin.prune(events="1ms")
    assert (report.events, len(report.held)) == (None, 1)
    await store.backfills.run("bought", switch=True)
    assert await store.get_feature("bought", "u1") == 3
    assert await query(store, "SELECT count(*) FROM events") == [(3,)]
