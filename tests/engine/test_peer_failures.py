"""Failures seen in the nearest peer: each is a promise with a test here."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.errors import UnknownNameError
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, backlog, metric, past, until
from tests.engine.test_events import declare_journal
from tests.processes import program
from tests.processes.fleet import Fleet

pytestmark = pytest.mark.both_environments


@pytest.fixture
async def shared(home: Path) -> AsyncIterator[FeatureStore]:
    """The store of the program whose processes are killed, seen from here."""
    before = program.store.settings
    await runtime_of(program.store).rebind(Settings().replace(home=home), SystemClock())
    yield program.store
    await runtime_of(program.store).rebind(before, SystemClock())


async def is_done(store: FeatureStore) -> bool:
    return await backlog(store) == 0


# Events


async def test_a_failing_handlers_event_is_kept_not_acknowledged_and_lost(
    store: FeatureStore, user: type
) -> None:
    mended = False

    @feature(entity=user, trigger="buy", max_retries=1)
    async def total(user_id: str, event: ServiceEvent) -> int:
        if not mended:
            raise ConnectionError("down")
        return int(event.payload["amount"])

    await store.publish("buy", "u1", {"amount": 5})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    mended = True
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert await store.get_feature("total", "u1") == 5


async def test_async_handlers_are_awaited(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        await asyncio.sleep(0)
        return int(event.payload["amount"])

    await store.publish("buy", "u1", {"amount": 5})
    await store.drain()
    assert await store.get_feature("total", "u1") == 5


async def test_a_dead_workers_pending_events_are_taken_over(
    shared: FeatureStore, home: Path
) -> None:
    fleet, begun = Fleet(home), home / "begun"
    with fleet.start() as doomed:
        await shared.publish("slow_note", "u1", {"number": 7, "begun": str(begun)})
        await until(begun.exists)
        doomed.kill()
    begun.unlink()
    with fleet.start() as heir:
        await until(begun.exists)
        begun.unlink()
        await until(lambda: is_done(shared))
        assert await shared.get_feature("journal", "u1") == [(7, heir.pid)]


async def test_an_error_of_the_store_does_not_end_the_loop(
    shared: FeatureStore, home: Path
) -> None:
    with Fleet(home).start() as worker:
        for _ in range(3):
            await shared.publish("padding", "u1", {"text": "x" * (program.SMALL_FILE // 2)})
        # It holds its partitions by then; the one error is to be that of a batch.
        await until(lambda: is_done(shared))
        worker.send(signal.SIGUSR1)
        await until(lambda: bool(worker.records("file size limited")))
        await shared.publish("note", "u1", {"number": 0})
        await until(lambda: bool(worker.records("commit failed; retrying")))
        worker.send(signal.SIGUSR2)
        await until(lambda: is_done(shared))
        assert await shared.get_feature("journal", "u1") == [(0, worker.pid)]


async def test_two_workers_never_leave_an_old_value_as_the_newest(
    settings: Settings, clock: ManualClock
) -> None:
    stores = [FeatureStore(settings=settings, clock=clock) for _ in range(2)]
    for store in stores:
        declare_journal(store)
    workers = [Worker(store) for store in stores]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    for number in range(100):
        await stores[number % 2].publish("note", "hot", {"number": number})
    await until(lambda: is_done(stores[0]))
    for worker in workers:
        worker.stop()
    await asyncio.gather(*running)
    assert await stores[0].get_feature("journal", "hot") == list(range(100))
    for store in stores:
        await store.close()


async def test_max_retries_works_as_documented(store: FeatureStore, user: type) -> None:
    runs = 0

    @feature(entity=user, trigger="buy", max_retries=2)
    async def flaky(user_id: str, event: ServiceEvent) -> int:
        nonlocal runs
        runs += 1
        if runs <= 2:
            raise ConnectionError("down")
        return runs

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("flaky", "u1") == 3


async def test_list_triggers_work_as_documented(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger=["buy", "sell"])
    async def last(user_id: str, event: ServiceEvent) -> str:
        return event.event_type

    for event_type in ("buy", "sell"):
        await store.publish(event_type, "u1")
        await store.drain()
        assert await store.get_feature("last", "u1") == event_type


async def test_the_workers_settings_work_as_documented(
    store: FeatureStore, user: type, home: Path, clock: ManualClock
) -> None:
    most = at_once = 0

    @feature(entity=user, trigger="buy")
    async def counted(user_id: str, event: ServiceEvent) -> int:
        nonlocal most, at_once
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        return most

    variables = {
        "HEADWATER_HOME": str(home),
        "HEADWATER_PARTITIONS": "1",
        "HEADWATER_WORKER_BATCH_SIZE": "2",
        "HEADWATER_WORKER_POLL_INTERVAL": "0.5",
        "HEADWATER_WORKER_CONSUMER_GROUP": "mine",
    }
    settings = load(variables, home)
    assert settings.worker.poll_interval == 0.5
    await runtime_of(store).rebind(settings, clock)
    for number in range(6):
        await store.publish("buy", f"u{number}")
    await store.drain()
    assert most == 2
    await runtime_of(store).rebind(settings.replace(worker={"consumer_group": "another"}), clock)
    assert await backlog(store) == 6


async def test_the_event_metrics_work_as_documented(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="counted_buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    processed = metric("headwater_events_processed_total", event_type="counted_buy")
    failed = metric("headwater_events_failed_total", event_type="counted_buy")
    seconds = metric("headwater_event_processing_seconds_count")
    await store.publish("counted_buy", "u1", {"amount": 5})
    await store.publish("counted_buy", "u1", {})
    await store.drain()
    after = metric("headwater_events_processed_total", event_type="counted_buy")
    assert after == processed + 2
    assert metric("headwater_events_failed_total", event_type="counted_buy") == failed + 1
    assert metric("headwater_event_processing_seconds_count") == seconds + 2


# Reads


async def test_a_ttl_is_kept(store: FeatureStore, user: type, clock: ManualClock) -> None:
    @feature(entity=user, trigger="seen", ttl="1m")
    async def online(user_id: str, event: ServiceEvent) -> bool:
        return True

    await store.publish("seen", "u1")
    await store.drain()
    assert await store.get_feature("online", "u1") is True
    clock.advance("1m")
    assert await store.get_feature("online", "u1") is None


async def test_an_unknown_feature_is_an_error_not_an_omission(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    def name(user_id: str) -> str:
        return "Ada"

    with pytest.raises(UnknownNameError, match="unknown feature 'nmae'; did you mean 'name'"):
        await store.get_features(["name", "nmae"], ["u1"])


async def test_sync_features_do_not_block_the_event_loop(store: FeatureStore, user: type) -> None:
    release = threading.Event()

    @feature(entity=user)
    def stubborn(user_id: str) -> bool:
        return release.wait(PATIENCE_SECONDS)

    @feature(entity=user)
    async def quick(user_id: str) -> int:
        return 1

    reading = asyncio.create_task(store.get_feature("stubborn", "u1"))
    assert await store.get_feature("quick", "u1") == 1
    assert not reading.done()
    release.set()
    assert await reading is True


# History


async def test_history_is_written_from_the_first_day(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    for amount in (5, 6):
        await store.publish("buy", "u1", {"amount": amount})
        clock.advance("1s")
    await store.drain()
    assert await past(store, "total") == [5, 6]
