"""Consumer groups: each gets every event, and one that was left holds back trimming."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client import REGISTRY

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import Outage, log
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import periodic_work as gauges
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, metric, records, until

pytestmark = pytest.mark.both_environments

EVENTS = 16
Open = Callable[[str], FeatureStore]


@pytest.fixture
async def opened(settings: Settings, clock: ManualClock) -> AsyncIterator[Open]:
    """Yield a function that opens the store for a group, with one feature named after it."""
    async with AsyncExitStack() as stores:

        def opening(group: str) -> FeatureStore:
            own = settings.replace(worker={"consumer_group": group})
            store = FeatureStore(settings=own, clock=clock)

            @entity(store)
            class User:
                user_id: str

            @feature(entity=User, trigger="buy", name=f"count_of_{group}", max_retries=0)
            async def count(user_id: str, event: ServiceEvent) -> int:
                if event.payload.get("fails"):
                    raise ValueError("no")
                return 1

            stores.push_async_callback(store.close)
            return store

        yield opening


@asynccontextmanager
async def started(*stores: FeatureStore) -> AsyncIterator[None]:
    """Run a worker of each store, and stop them at the end."""
    workers = [Worker(store) for store in stores]
    tasks = [asyncio.create_task(worker.run()) for worker in workers]
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()
        await asyncio.gather(*tasks)


async def use(store: FeatureStore) -> None:
    """Handle one event as the group of a store."""
    await store.publish("buy", "u0")
    await store.drain()


async def is_done(*stores: FeatureStore) -> bool:
    return not any([await backlog(store) for store in stores])


async def are_listed(store: FeatureStore, *groups: str) -> bool:
    return {*groups} <= {group.name for group in await store.admin.groups()}


async def test_two_groups_at_work_handle_every_event_each(opened: Open) -> None:
    one, two = opened("one"), opened("two")
    async with started(one, two, one, two):
        await until(lambda: are_listed(one, "one", "two"))
        for number in range(EVENTS):
            await one.publish("buy", f"u{number}")
        await until(lambda: is_done(one, two))
    for store, name in ((one, "count_of_one"), (two, "count_of_two")):
        values = await store.get_features([name], [f"u{number}" for number in range(EVENTS)])
        assert [row[name] for row in values.values()] == [1] * EVENTS


async def test_a_dead_letter_is_redriven_in_its_own_group_alone(opened: Open) -> None:
    one, two = opened("one"), opened("two")
    await one.publish("buy", "u1", {"fails": True})
    for store in (one, two):
        await store.drain()
    letters = {letter.group: letter for letter in await one.dead_letters.list()}
    assert sorted(letters) == ["one", "two"]
    await one.dead_letters.redrive(letters["one"].id)
    for store in (two, one):
        await store.drain()
    waiting = await one.dead_letters.list()
    assert sorted(letter.feature for letter in waiting) == ["count_of_one", "count_of_two"]


async def test_a_group_that_was_left_is_listed_and_can_be_dropped(opened: Open) -> None:
    used, left = opened("used"), opened("left")
    await use(left)
    for number in range(EVENTS):
        await used.publish("buy", f"u{number}")
    await used.drain()
    listed = {group.name: group for group in await used.admin.groups()}
    assert (listed["used"].waiting, listed["left"].waiting) == (0, EVENTS)
    assert listed["left"].committed_at is not None
    assert listed["left"].workers == []
    await used.admin.drop_group("left")
    assert [group.name for group in await used.admin.groups()] == ["used"]


async def test_a_group_without_workers_that_holds_back_events_is_measured_and_logged_once(
    opened: Open,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(gauges, "_MEASURE_SECONDS", 0.01)
    monkeypatch.setattr(gauges, "_PAUSE_PER_MEASUREMENT", 0)
    monkeypatch.setattr(gauges, "_ABANDONED_SECONDS", 0.0)
    used, left = opened("used"), opened("left")
    await use(left)
    await used.publish("buy", "u1")
    written = ""

    def warnings() -> int:
        nonlocal written
        log.flush()
        written += capsys.readouterr().err
        return len(records(written, "consumer group without workers holds back events"))

    async with started(used):
        await until(lambda: metric("headwater_group_workers", group="used") == 1)
        await until(lambda: metric("headwater_group_lag_events", group="left") == 1)
        await until(lambda: metric("headwater_group_lag_events", group="used") == 0)
        await until(lambda: warnings() > 0)
        await used.admin.drop_group("left")
        await until(lambda: not is_measured("left"))
    assert not is_measured("used")
    told = records(written, "consumer group without workers holds back events")
    (about_left,) = [record for record in told if record["group"] == "left"]
    assert about_left["waiting"] == 1
    assert "headwater groups drop left" in about_left["remedy"]


def is_measured(group: str) -> bool:
    """Return whether there is a gauge for a group."""
    return REGISTRY.get_sample_value("headwater_group_workers", {"group": group}) is not None


async def test_a_group_without_workers_for_a_moment_is_not_reported(
    opened: Open, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    store = opened("used")
    await use(store)
    await store.publish("buy", "u1")
    engine = await runtime_of(store).open()
    measuring = asyncio.create_task(
        gauges.update_gauges(engine.backends, clock, (), Outage("events"))
    )
    await until(lambda: metric("headwater_group_lag_events", group="used") == 1)
    measuring.cancel()
    log.flush()
    assert (
        records(capsys.readouterr().err, "consumer group without workers holds back events") == []
    )
