"""Worker processes on real servers that are killed, stopped or cut off."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore
from headwater.backends.redis.client import Redis, command
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.settings.schema import Settings
from tests.backends.redis import refreshing
from tests.engine.support import backlog, past, until
from tests.processes import program
from tests.processes.fleet import Fleet, Process

pytestmark = pytest.mark.chaos


@asynccontextmanager
async def seen_from_here(store: FeatureStore, settings: Settings) -> AsyncIterator[FeatureStore]:
    """The store of the worker processes, opened in this process."""
    before = store.settings
    await runtime_of(store).rebind(settings, SystemClock())
    yield store
    await runtime_of(store).rebind(before, SystemClock())


@pytest.fixture
async def shared(settings: Settings) -> AsyncIterator[FeatureStore]:
    async with seen_from_here(program.store, settings) as store:
        yield store


@pytest.fixture
def variables(settings: Settings) -> dict[str, Any]:
    """Return the environment with which processes open the same store."""
    return {
        "partitions": settings.partitions,
        "redis_url": settings.redis.url,
        "redis_prefix": settings.redis.prefix,
        "postgres_url": settings.postgres.url,
        "postgres_schema": settings.postgres.schema,
        "worker_lease_ttl": 2,
    }


@pytest.fixture
def fleet(variables: dict[str, Any], tmp_path: Path) -> Fleet:
    return Fleet(tmp_path, **variables)


async def is_done(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_a_dead_workers_pending_events_are_taken_over(
    shared: FeatureStore, fleet: Fleet, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
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


async def test_a_worker_that_was_stopped_past_its_lease_changes_nothing_when_it_wakes(
    shared: FeatureStore, fleet: Fleet, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with fleet.start() as zombie:
        await shared.publish("slow_note", "u1", {"number": 0, "begun": str(begun)})
        await until(begun.exists)
        zombie.send(signal.SIGSTOP)
        zombie.stopped()
        begun.unlink()
        with fleet.start() as heir:
            await until(begun.exists)
            begun.unlink()
            await until(lambda: is_done(shared))
            zombie.send(signal.SIGCONT)
            await until(lambda: bool(zombie.records("lease lost")))
            await shared.publish("note", "u1", {"number": 1})
            await until(lambda: is_done(shared))
            journal = await shared.get_feature("journal", "u1")
            assert [number for number, _ in journal] == [0, 1]
            assert journal[0] == (0, heir.pid)


async def test_an_error_of_redis_does_not_end_the_loop(
    shared: FeatureStore, fleet: Fleet, settings: Settings
) -> None:
    client = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await client.open()
    with fleet.start() as worker:
        for number in range(20):
            await shared.publish("note", "u1", {"number": number})
            await client.call(command("k", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))
        await until(lambda: is_done(shared))
        journal = await shared.get_feature("journal", "u1")
        assert journal == [(number, worker.pid) for number in range(20)]
        worker.send(signal.SIGTERM)
        assert await worker.ended() == 0
    await client.close()


@pytest.mark.parametrize("settings", ["server"], indirect=True)
@pytest.mark.parametrize(("event_type", "problem"), [("hang", "died"), ("stuck", "timed out")])
async def test_an_event_whose_handler_hangs_is_set_aside_and_the_others_go_on(
    shared: FeatureStore,
    variables: dict[str, Any],
    tmp_path: Path,
    event_type: str,
    problem: str,
) -> None:
    # Long enough for the other handlers on a machine that is overloaded.
    limits = {"worker_handler_timeout": 5, "worker_max_deliveries": 2}
    fleet = Fleet(tmp_path, **variables | limits)
    await shared.publish(event_type, "u1")
    await shared.publish("note", "u1", {"number": 1})

    async def ended_or_done(worker: Process) -> bool:
        return worker.exit_code is not None or await is_done(shared)

    while not await is_done(shared):
        with fleet.start() as worker:
            await until(partial(ended_or_done, worker))
    (letter,) = await shared.dead_letters.list()
    assert letter.event.event_type == event_type
    assert problem in letter.error
    assert [number for number, _ in await shared.get_feature("journal", "u1")] == [1]


async def test_sigterm_finishes_running_events_and_exits_with_success(
    shared: FeatureStore, fleet: Fleet, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with fleet.start() as worker:
        await shared.publish("slow_note", "u1", {"number": 3, "begun": str(begun)})
        await until(begun.exists)
        worker.send(signal.SIGTERM)
        begun.unlink()
        assert await worker.ended() == 0
        assert await shared.get_feature("journal", "u1") == [(3, worker.pid)]
    assert {lag.owner for lag in await shared.admin.lag()} == {None}


async def test_a_refresh_whose_owner_is_killed_is_finished_by_another_once(
    settings: Settings, variables: dict[str, Any], tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, module="tests.backends.redis.refreshing", **variables)
    ids, begun = [f"u{number}" for number in range(8)], tmp_path / "refreshing"
    async with seen_from_here(refreshing.store, settings) as store:
        for entity_id in ids:
            await store.set_feature("checked", entity_id, 0)
        with fleet.start("work") as one, fleet.start("work") as other:
            await until(lambda: begun.exists() and begun.read_text() != "")
            owner, heir = (one, other) if begun.read_text() == str(one.pid) else (other, one)
            owner.kill()
            await until(lambda: begun.read_text() == str(heir.pid))
            begun.unlink()

            async def all_are_refreshed() -> bool:
                rows = await store.get_features(["checked"], ids)
                return all(row["checked"] for row in rows.values())

            await until(all_are_refreshed)
            assert await store.get_feature("checked", refreshing.LAST) == heir.pid
            for entity_id in ids:
                assert len(await past(store, "checked", entity_id)) == 2
