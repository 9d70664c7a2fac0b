"""Pruning: old history, events and records go, and nothing that a later read needs."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import FeatureStore, ServiceEvent, Worker, context, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.engine.auditing import audited
from headwater.errors import InvalidInputError, UnknownContextError
from headwater.history.retention import NightlyPruning
from headwater.model.admin import PrunedPart, PruneReport
from headwater.model.catalog import (
    BackfillState,
    CatalogEntry,
    CatalogState,
    FeatureVersion,
    Horizons,
)
from headwater.model.events import MIRRORED
from headwater.ports import Backends
from headwater.settings.groups import RetentionSettings
from headwater.settings.schema import Settings, on_servers
from headwater.testing import ManualClock
from tests.engine.support import past, query, until

DAY = timedelta(days=1)
pytestmark = pytest.mark.both_environments
START = datetime(2026, 1, 1, 2, tzinfo=UTC)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture(autouse=True)
def greeting(store: FeatureStore) -> Any:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=0)
    async def bought(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("bought", user_id)) + 1

    @context(store)
    async def greeting(user_id: str) -> str:
        return f"hello, buyer of {await store.get_feature('bought', user_id)}"

    return greeting


async def buy_daily(store: FeatureStore, clock: ManualClock, days: int) -> None:
    """Publish one event each day; afterwards it is the morning after the last one."""
    for _ in range(days):
        await store.publish("buy", "u1", {})
        await Worker(store).drain()
        clock.advance(DAY)


async def backends_of(store: FeatureStore) -> Backends:
    return (await runtime_of(store).open()).backends


async def nightly(store: FeatureStore) -> NightlyPruning:
    """Return the nightly pruning of another worker."""
    return await _nightly(store, is_by_month=False)


async def _nightly(store: FeatureStore, *, is_by_month: bool) -> NightlyPruning:
    engine = await runtime_of(store).open()
    return NightlyPruning(
        engine.backends,
        engine.catalog,
        engine.registry,
        NIGHTLY,
        partial(audited, engine),
        is_by_month=is_by_month,
    )


async def count_events(store: FeatureStore) -> int:
    [(count,)] = await query(store, "SELECT count(*) FROM events")
    return int(count)


async def test_pruning_removes_what_is_older_and_stores_the_moments(
    store: FeatureStore, clock: ManualClock, greeting: Any
) -> None:
    await greeting("u1")
    await buy_daily(store, clock, 10)
    before = clock.now() - timedelta(hours=84)
    keep: dict[str, Any] = {"history": timedelta(hours=84), "records": "1w"}
    counted = await store.admin.prune(**keep, dry_run=True)
    assert await past(store, "bought") == [*range(1, 11)]
    catalog = (await backends_of(store)).catalog
    assert (await catalog.load()).pruned == Horizons()
    pruned = await store.admin.prune(**keep)
    assert pruned == replace(counted, dry_run=False)
    assert pruned == PruneReport(
        history=PrunedPart(before, 6),
        records=PrunedPart(clock.now() - 7 * DAY, 1),
    )
    assert await past(store, "bought") == [7, 8, 9, 10]
    assert (await catalog.load()).pruned == Horizons(before, None, clock.now() - 7 * DAY)
    assert (await store.admin.audit()).differences == []
    await store.admin.prune(history="10d")
    assert (await catalog.load()).pruned.history == before


async def test_pruning_needs_an_age_and_takes_it_from_the_settings(
    settings: Settings, clock: ManualClock, store: FeatureStore
) -> None:
    with pytest.raises(InvalidInputError, match=r"set retention.history"):
        await store.admin.prune()
    with pytest.raises(InvalidInputError, match="'3 days' is not a duration"):
        await store.admin.prune(events="3 days")
    own = settings.replace(retention={"events": "2y"})
    async with FeatureStore(settings=own, clock=clock) as configured:
        pruned = await configured.admin.prune()
    assert pruned == PruneReport(events=PrunedPart(clock.now() - 730 * DAY, 0))


def catalog_with_backfill(since: datetime | None, revision: int) -> CatalogState:
    version = FeatureVersion(
        number=2,
        series="bought@2",
        state="building",
        type="int",
        structure="",
        created_at=START,
        backfill=BackfillState(id="b1", group="backfill-b1", main_group="workers", since=since),
    )
    entry = CatalogEntry(feature="bought", entity="User", versions=[version])
    return CatalogState(revision=revision, features={"bought": entry})


async def test_what_a_backfill_in_progress_needs_is_not_pruned(
    store: FeatureStore, clock: ManualClock
) -> None:
    await buy_daily(store, clock, 5)
    catalog = (await backends_of(store)).catalog
    revision = await catalog.revision()
    assert await catalog.replace(catalog_with_backfill(None, revision + 1))
    pruned = await store.admin.prune(history="1s", events="1s", records="1s")
    assert (pruned.history, pruned.events) == (None, None)
    assert pruned.held == (
        "the backfill of 'bought' is in progress and needs all events and all of history",
    )
    since = clock.now() - 2 * DAY
    assert await catalog.replace(catalog_with_backfill(since, await catalog.revision() + 1))
    pruned = await store.admin.prune(history="1s", events="1s")
    assert pruned.history == PrunedPart(since, 3)
    assert f"history since {since.isoformat()}" in pruned.held[0]
    assert (await catalog.load()).pruned == Horizons(history=since)
    assert (await past(store, "bought"), await count_events(store)) == ([4, 5], 5)


async def test_how_far_a_topic_is_copied_is_not_pruned(
    store: FeatureStore, clock: ManualClock
) -> None:
    for offset in (1, 2):
        for topic in ("mirror-a", "mirror-b"):
            await store.publish(MIRRORED, topic, {"offsets": {"0": offset}})
        await buy_daily(store, clock, 1)
    clock.advance(700 * DAY)  # also on servers, whose events have times of their own
    await store.admin.prune(events="100d")
    marks = await store.bus.list(event_type=MIRRORED)
    found = [(each.event.entity_id, each.event.payload["offsets"]) for each in marks]
    assert sorted(found) == [("mirror-a", {"0": 2}), ("mirror-b", {"0": 2})]
    assert await store.bus.list(event_type="buy") == []


async def test_an_unknown_context_may_have_been_pruned(
    store: FeatureStore, clock: ManualClock, greeting: Any
) -> None:
    made = await greeting("u1")
    with pytest.raises(UnknownContextError) as unknown:
        await store.get_context_at("f" * 8)
    assert "pruned" not in str(unknown.value)
    clock.advance(DAY)
    await store.admin.prune(records="1h")
    with pytest.raises(UnknownContextError, match=r"records before .* were pruned"):
        await store.get_context_at(made.context_id)


async def test_a_context_from_before_the_moment_is_not_replayed_from_pruned_history(
    store: FeatureStore, clock: ManualClock, greeting: Any
) -> None:
    await buy_daily(store, clock, 1)
    old = await greeting("u1")
    await buy_daily(store, clock, 1)
    clock.advance(DAY)
    recent = await greeting("u1")
    await buy_daily(store, clock, 1)
    await store.admin.prune(history="25h")
    assert (await store.replay(recent.context_id, "as_of")).matches
    with pytest.raises(InvalidInputError, match=r"history before .* was pruned"):
        await store.replay(old.context_id, "as_of")
    assert (await store.replay(old.context_id, "reassemble")).matches


NIGHTLY = RetentionSettings(history="1d", hour=3)


async def test_the_nightly_run_happens_once_a_day_for_all_workers(
    store: FeatureStore, clock: ManualClock
) -> None:
    workers = [await nightly(store) for _ in range(4)]

    async def run_all() -> list[PruneReport]:
        reports = await asyncio.gather(*(worker.run(clock.now()) for worker in workers))
        return [report for report in reports if report is not None]

    assert await run_all() == []
    await buy_daily(store, clock, 3)
    clock.advance(timedelta(minutes=59))
    (report,) = await run_all()
    assert report == PruneReport(history=PrunedPart(clock.now() - DAY, 2))
    assert await run_all() == []
    clock.advance(timedelta(minutes=2))
    assert len(await run_all()) == 1
    assert await run_all() == []
    assert await (await nightly(store)).run(clock.now()) is None
    entries = (await store.audit_log(action="admin.prune")).entries
    assert [(each.target, each.outcome) for each in entries] == [("nightly", "done")] * 2


async def test_by_month_a_nightly_run_keeps_the_rows_of_a_month_that_is_not_over(
    store: FeatureStore, clock: ManualClock
) -> None:
    worker = await _nightly(store, is_by_month=True)
    await worker.run(clock.now())
    await buy_daily(store, clock, 3)
    clock.advance(20 * DAY)
    january, february = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    assert await worker.run(clock.now()) == PruneReport(history=PrunedPart(january, 0))
    clock.advance(10 * DAY)
    assert await worker.run(clock.now()) == PruneReport(history=PrunedPart(february, 2))


async def test_workers_prune_by_night_and_log_the_rows(
    settings: Settings, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    own = settings.replace(retention={"history": "1d"})
    async with FeatureStore(settings=own, clock=clock) as store:

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="buy")
        def amount(user_id: str, event: ServiceEvent) -> int:
            return int(event.payload["amount"])

        for number in range(3):
            await store.publish("buy", "u1", {"amount": number})
            clock.advance(timedelta(seconds=1))
        await Worker(store).drain()
        await (await nightly(store)).run(clock.now())
        clock.advance(40 * DAY)
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        logged = ""

        def is_logged() -> bool:
            nonlocal logged
            logged += capsys.readouterr().err
            return "old rows pruned" in logged

        await until(is_logged)
        worker.stop()
        await running
        assert await past(store, "amount") == [2]
        (entry,) = (await store.audit_log(action="admin.prune")).entries
        assert (entry.target, entry.outcome) == ("nightly", "done")
        pruned = (await (await backends_of(store)).catalog.load()).pruned.history
        # On servers whole months are removed.
        february = datetime(2026, 2, 1, tzinfo=UTC)
        assert pruned == (february if on_servers(own) else clock.now() - DAY)
    assert '"history":2,"events":0,"records":0' in logged


async def test_values_of_long_ago_that_were_written_lately_can_be_read_after_pruning(
    store: FeatureStore, clock: ManualClock
) -> None:
    long_ago = clock.now() - 900 * DAY
    await store.set_feature("bought", "u1", 7, as_of=long_ago)
    frame = [{"user_id": "u1", "timestamp": long_ago + DAY}]
    for _ in range(2):
        report = await store.admin.prune(history="400d")
        assert report.history == PrunedPart(clock.now() - 400 * DAY, 0)
        (row,) = await store.get_historical_features(frame, ["bought"])
        assert row["bought"] == 7
    await store.set_feature("bought", "u1", 8)
    clock.advance(800 * DAY)
    pruned = await store.admin.prune(history="400d")
    assert pruned.history is not None
    assert pruned.history.rows == 1
    with pytest.raises(InvalidInputError, match="was pruned"):
        await store.get_historical_features(frame, ["bought"])
