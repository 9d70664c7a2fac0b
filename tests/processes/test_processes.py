"""Several processes share a store, and any of them may die at any moment."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from tests.engine.support import backlog, query, until
from tests.processes import program
from tests.processes.fleet import Fleet, Process

pytestmark = pytest.mark.chaos

ENTITIES = [f"u{number}" for number in range(24)]


@pytest.fixture
async def store(home: Path) -> AsyncIterator[FeatureStore]:
    """The program's store, seen from the process that tests it."""
    before = program.store.settings
    await runtime_of(program.store).rebind(Settings().replace(home=home), SystemClock())
    yield program.store
    await runtime_of(program.store).rebind(before, SystemClock())


async def publish_notes(store: FeatureStore, numbers: range) -> None:
    for number in numbers:
        await store.bus.publish_many(
            [ServiceEvent("note", entity_id, {"number": number}) for entity_id in ENTITIES],
            dedup=False,
        )


async def publish_until_both_work(store: FeatureStore) -> int:
    """Publish notes until two processes have handled some; return their number."""
    count = 0
    while len({pid for own in (await journals(store)).values() for _, pid in own}) < 2:
        await publish_notes(store, range(count, count + 1))
        count += 1
        await until(lambda: done(store))
    return count


async def journals(store: FeatureStore) -> dict[str, list[tuple[int, int]]]:
    rows = await store.get_features(["journal"], ENTITIES)
    return {entity_id: row["journal"] or [] for entity_id, row in rows.items()}


def assert_in_order(journals: dict[str, list[tuple[int, int]]], count: int) -> None:
    for entries in journals.values():
        assert [number for number, _ in entries] == list(range(count))


async def done(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_two_processes_lose_no_update_and_reorder_none(
    store: FeatureStore, home: Path
) -> None:
    fleet = Fleet(home)
    with fleet.start() as one, fleet.start() as other:
        count = await publish_until_both_work(store)
        await publish_notes(store, range(count, count + 40))
        await until(lambda: done(store))
        for process in (one, other):
            process.send(signal.SIGTERM)
            assert await process.ended() == 0
    assert_in_order(await journals(store), count + 40)
    everything = (count + 40) * len(ENTITIES)
    assert await query(store, "SELECT count(*) FROM feature_history") == [(everything,)]


async def test_when_one_process_is_killed_the_other_takes_over_at_once(
    store: FeatureStore, home: Path
) -> None:
    # So long a lease that only the kernel's word for the death can free the partitions in time.
    fleet = Fleet(home, worker_lease_ttl=600, worker_batch_size=10)
    with fleet.start() as one, fleet.start() as other:
        count = await publish_until_both_work(store)
        publishing = asyncio.create_task(publish_notes(store, range(count, count + 60)))
        before = len(one.records("event processed"))
        await until(lambda: len(one.records("event processed")) > before)
        one.kill()
        await publishing
        await until(lambda: done(store))
        assert_in_order(await journals(store), count + 60)
        assert other.exit_code is None


async def test_a_process_that_sleeps_past_its_lease_is_fenced(
    store: FeatureStore, home: Path
) -> None:
    fleet = Fleet(home, worker_lease_ttl=2)
    begun = home / "begun"
    with fleet.start() as sleeper:
        await store.publish("slow_note", "u1", {"number": 0, "begun": str(begun)})
        await until(begun.exists)
        sleeper.send(signal.SIGSTOP)
        sleeper.stopped()
        begun.unlink()
        with fleet.start() as other:
            # The other's own run of the handler shows itself and waits, like the first.
            await until(begun.exists)
            begun.unlink()
            await until(lambda: done(store))
            before = await store.get_feature("journal", "u1")
            sleeper.send(signal.SIGCONT)
            await until(lambda: bool(sleeper.records("lease lost")))
            assert await store.get_feature("journal", "u1") == before == [(0, other.pid)]
            await publish_notes(store, range(1, 6))
            await until(lambda: done(store))
    entries = await store.get_feature("journal", "u1")
    assert [number for number, _ in entries] == [0, 1, 2, 3, 4, 5]


async def test_an_event_that_kills_its_process_is_set_aside_and_the_rest_is_processed(
    store: FeatureStore, home: Path
) -> None:
    fleet = Fleet(home, worker_max_deliveries=2)
    await publish_notes(store, range(2))
    await store.publish("bomb", "u1", {"fatal": True})
    await publish_notes(store, range(2, 4))
    deaths = 0
    while not await done(store):
        with fleet.start() as process:
            deaths += await died(process, store)
    assert deaths == 3
    assert_in_order(await journals(store), 4)
    (letter,) = await store.dead_letters.list()
    assert (letter.event.event_type, letter.event.entity_id) == ("bomb", "u1")
    assert "died" in letter.error


async def died(process: Process, store: FeatureStore) -> bool:
    """Wait until a process is dead or idle; return whether it is dead."""

    async def dead_or_done() -> bool:
        return process.exit_code is not None or await done(store)

    await until(dead_or_done)
    return process.exit_code is not None


async def test_a_sync_handler_that_hangs_takes_no_other_event_with_it(
    store: FeatureStore, home: Path
) -> None:
    # Long enough for the other handlers on a machine that is overloaded.
    fleet = Fleet(home, worker_handler_timeout=5, worker_max_hung_threads=1)
    await publish_notes(store, range(2))
    await store.publish("stuck", "u1")
    await publish_notes(store, range(2, 4))
    with fleet.start() as process:
        assert await process.ended() == os.EX_SOFTWARE
    assert process.records("worker exits: too many hung threads")
    with fleet.start():
        await until(lambda: done(store))
    assert_in_order(await journals(store), 4)
    (letter,) = await store.dead_letters.list()
    assert (letter.feature, letter.event.event_type) == ("stuck", "stuck")


async def test_a_worker_goes_on_after_its_disk_failed_and_loses_nothing(
    store: FeatureStore, home: Path
) -> None:
    fleet = Fleet(home)
    with fleet.start() as process:
        # The write-ahead log outgrows what the process will be allowed to write; its own does not.
        for _ in range(3):
            await store.publish("padding", "u1", {"text": "x" * (program.SMALL_FILE // 2)})
        await publish_notes(store, range(1))
        await until(lambda: done(store))
        process.send(signal.SIGUSR1)
        await until(lambda: bool(process.records("file size limited")))
        await publish_notes(store, range(1, 4))
        await until(lambda: bool(process.records("commit failed; retrying")))
        process.send(signal.SIGUSR2)
        await until(lambda: done(store))
        assert process.exit_code is None
    assert_in_order(await journals(store), 4)


async def test_killing_the_process_that_writes_a_segment_leaves_every_row_once(
    store: FeatureStore, home: Path
) -> None:
    fleet = Fleet(home, offline_segment_rows=7)
    segments = home / "segments"
    count = 0
    for written in (1, 10):
        with fleet.start("roll") as process:
            seen: set[str] = set()
            while len(seen) < written:
                await publish_notes(store, range(count, count + 1))
                count += 1
                await until(lambda: done(store))
                seen |= {file.name for file in segments.iterdir()}
            process.kill()
    await (await runtime_of(store).open()).backends.offline.maintain()
    assert_in_order(await journals(store), count)
    everything = count * len(ENTITIES)
    for table, key in (("events", "event_id"), ("feature_history", "cause")):
        counted = f"SELECT count(*), count(DISTINCT {key}) FROM {table}"
        assert await query(store, counted) == [(everything, everything)]
    assert not list(segments.glob("*.unfinished"))
