"""Backfills: a new version of a feature is computed from past events, and then served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackfillRefusedError, InvalidInputError, UnknownNameError
from headwater.settings.schema import Settings
from tests.engine.support import until

USERS = 5


def declared(settings: Settings, *, is_new: bool = False) -> FeatureStore:
    """Return a store with a feature that keeps the ids of events; the new function marks them."""
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", default=[])
    async def seen(user_id: str, event: ServiceEvent) -> list[str]:
        mark = "new " if is_new else ""
        return [*await store.get_feature("seen", user_id), mark + event.event_id]

    return store


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[FeatureStore]:
    """Yield a store with the new function, after the old one has run for two events per user."""
    async with declared(settings) as old:
        await publish(old, "a", "b")
        await Worker(old).drain()
    async with declared(settings, is_new=True) as new:
        yield new


async def publish(store: FeatureStore, *names: str) -> None:
    """Publish events of every user."""
    for name in names:
        for number in range(USERS):
            await store.publish("buy", f"u{number}", {}, event_id=f"{name}{number}")


async def values(store: FeatureStore) -> Mapping[str, list[str]]:
    rows = await store.get_features(["seen"], [f"u{number}" for number in range(USERS)])
    return {entity_id: row["seen"] for entity_id, row in rows.items()}


def expected(*names: str) -> Mapping[str, list[str]]:
    """Return the values that events of these names give; "new a" is a, marked."""
    return {f"u{number}": [f"{name}{number}" for name in names] for number in range(USERS)}


@asynccontextmanager
async def working(store: FeatureStore) -> AsyncIterator[Worker]:
    worker = Worker(store)
    task = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.health().ok)
        yield worker
    finally:
        worker.stop()
        await task


@pytest.mark.both_environments
async def test_a_backfill_of_a_stopped_store_makes_a_version_that_is_served_after_the_switch(
    store: FeatureStore,
) -> None:
    report = await store.backfills.run("seen")
    assert (report.version, report.is_served) == (2, False)
    assert report.replayed is not None
    assert report.replayed.events == 2 * USERS
    assert await values(store) == expected("a", "b")
    await publish(store, "c")
    await Worker(store).drain()
    assert await values(store) == expected("a", "b", "new c")
    await store.backfills.switch("seen")
    assert await values(store) == expected("new a", "new b", "new c")
    groups = [group.name for group in await store.admin.groups()]
    assert groups == [store.settings.worker.consumer_group]


@pytest.mark.both_environments
async def test_workers_take_over_while_events_flow(store: FeatureStore) -> None:
    async with working(store):
        await publish(store, "c")
        report = await store.backfills.run("seen", switch=True)
        assert report.is_served
        await publish(store, "d")
        await store.drain()
    assert await values(store) == expected("new a", "new b", "new c", "new d")


async def test_history_of_the_new_version_begins_with_the_first_event(store: FeatureStore) -> None:
    await store.backfills.run("seen", switch=True)
    found = await store.get_feature_history("seen", "u0")
    assert [each.value for each in found] == [["new a0", "new b0"], ["new a0"]]
    assert [each.cause for each in found] == ["b0", "a0"]


async def test_versions_are_compared_and_counted_in_one_query_for_all_entities(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.backfills.run("seen")
    backends = (await runtime_of(store).open()).backends
    asked: list[str] = []

    def noting(name: str, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        def call(*arguments: Any, **options: Any) -> Awaitable[Any]:
            asked.append(name)
            return verb(*arguments, **options)

        return call

    for name in ("rows", "query"):
        verb = getattr(backends.offline, name)
        monkeypatch.setattr(backends.offline, name, noting(name, verb))
    compared = await store.backfills.compare("seen")
    assert (compared.sampled_entities, compared.history.different) == (USERS, 2 * USERS)
    assert asked == ["rows", "rows"]  # one for each version
    counts = [(each.online, each.history) for each in await store.catalog.versions("seen")]
    assert counts == [(USERS, 2 * USERS)] * 2
    assert asked == ["rows", "rows", "query"]


async def test_a_comparison_shows_equal_and_different_values(store: FeatureStore) -> None:
    with pytest.raises(InvalidInputError, match=r"no backfill .*headwater backfill seen"):
        await store.backfills.compare("seen")
    await store.backfills.run("seen")
    found = await store.backfills.compare("seen", limit=2)
    assert (found.old, found.new) == (1, 2)
    assert (found.online.equal, found.online.different) == (0, USERS)
    assert [each.entity_id for each in found.examples] == ["u0", "u1"]
    assert found.history.different == 2 * USERS
    assert found.numbers is None


async def test_a_switch_is_refused_until_the_version_is_ready_and_can_be_undone(
    store: FeatureStore,
) -> None:
    with pytest.raises(InvalidInputError, match="no backfill"):
        await store.backfills.switch("seen")
    await store.backfills.run("seen", switch=True)
    assert (await store.backfills.switch("seen", version=1)).before == 2
    assert await values(store) == expected("a", "b")
    with pytest.raises(InvalidInputError, match=r"version 1 .* is served already"):
        await store.backfills.switch("seen", version=1)
    with pytest.raises(InvalidInputError, match="no version 7; its versions: 1, 2"):
        await store.backfills.switch("seen", version=7)


@pytest.mark.both_environments
async def test_a_cancelled_backfill_leaves_nothing_and_can_be_begun_again(
    store: FeatureStore,
) -> None:
    await store.backfills.run("seen")
    assert await store.backfills.cancel("seen") == 2
    groups = [group.name for group in await store.admin.groups()]
    assert groups == [store.settings.worker.consumer_group]
    with pytest.raises(InvalidInputError, match="no backfill"):
        await store.backfills.status("seen")
    assert (await store.backfills.run("seen", switch=True)).version == 3
    assert await values(store) == expected("new a", "new b")


@pytest.mark.both_environments
async def test_values_from_before_a_time_are_kept(store: FeatureStore) -> None:
    engine = await runtime_of(store).open()
    ((row,),) = await engine.backends.offline.rows("seen", ["u0"], limit=1)
    report = await store.backfills.run("seen", since=row.as_of, switch=True)
    assert report.replayed is not None
    assert 0 < report.replayed.events <= USERS
    assert (await values(store))["u0"] == ["a0", "new b0"]
    assert [each.value for each in await store.get_feature_history("seen", "u0")] == [
        ["a0", "new b0"],
        ["a0"],
    ]


async def test_another_start_than_that_of_the_unfinished_backfill_is_refused(
    store: FeatureStore,
) -> None:
    await store.backfills.run("seen")
    with pytest.raises(BackfillRefusedError, match=r"from all events is in progress.*cancel seen"):
        await store.backfills.run("seen", since=store.clock.now())


async def test_mistakes_of_a_backfill_are_refused_with_the_remedy(store: FeatureStore) -> None:
    now = store.clock.now()
    run = store.backfills.run
    with pytest.raises(InvalidInputError, match="no time zone; pass an aware"):
        await run("seen", since=now.replace(tzinfo=None))
    with pytest.raises(InvalidInputError, match=r"not before until .* exchange them"):
        await run("seen", since=now, until=now)
    with pytest.raises(InvalidInputError, match="no new version to switch to"):
        await run("seen", until=now, switch=True)
    for verb in (run, store.backfills.status, store.backfills.switch, store.backfills.cancel):
        with pytest.raises(UnknownNameError, match="did you mean 'seen'"):
            await verb("sen")


@pytest.mark.both_environments
async def test_values_are_added_to_history_before_the_first_one_of_each_user(
    settings: Settings,
) -> None:
    noon, hour = datetime(2026, 1, 15, 12, tzinfo=UTC), timedelta(hours=1)
    async with FeatureStore(settings=settings) as before:  # the events come before the feature
        for number, name in enumerate("abc"):
            for user in ("ada", "bob"):
                at = noon + number * hour
                await before.publish("buy", user, {}, event_id=f"{name} {user}", timestamp=at)
        await Worker(before).drain()
    async with declared(settings) as store:
        await store.publish("buy", "ada", {}, event_id="d ada", timestamp=noon + hour)
        await Worker(store).drain()
        for added in (3, 0):  # the second time there is nothing left to add
            report = await store.backfills.run("seen", until=noon + 2 * hour)
            assert report.replayed is not None
            assert (report.version, report.replayed.values) == (None, added)
            ada, bob = [await store.get_feature_history("seen", user) for user in ("ada", "bob")]
            assert [each.value for each in ada] == [["d ada"], ["a ada"]]
            assert [each.value for each in bob] == [["a bob", "b bob"], ["a bob"]]
            # Where there was no value the last one is served, as history has it.
            assert await store.get_features(["seen"], ["ada", "bob"]) == {
                "ada": {"seen": ["d ada"]},
                "bob": {"seen": ["a bob", "b bob"]},
            }
            assert (await store.admin.audit()).differences == []
        assert [each.version for each in await store.catalog.versions("seen")] == [1]


@pytest.mark.both_environments
async def test_failed_events_are_reported_and_no_files_are_left_behind(
    store: FeatureStore, settings: Settings, tmp_path: Path
) -> None:
    await store.close()
    folder = tmp_path / "backfills"
    strict_store = FeatureStore(settings=settings.replace(backfill={"folder": str(folder)}))

    @strict_store.entity
    class User:
        user_id: str

    @strict_store.feature(User, trigger="buy", max_retries=0)
    def strict(user_id: str, event: ServiceEvent) -> int:
        if event.event_id == "a0":
            raise ValueError("bad event")
        return 1

    async with strict_store:
        run = strict_store.backfills.run
        added = await run("strict", until=strict_store.clock.now())
        served = await run("strict", switch=True)
    for report in (added, served):
        assert [each.event.event_id for each in report.failures] == ["a0"]
        assert "bad event" in report.failures[0].error
    assert list(folder.iterdir()) == []
