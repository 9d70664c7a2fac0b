"""Workers of two files side by side: the newer code handles every event, also after a backfill."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackfillRefusedError, CodeChangedError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, past, records, until

pytestmark = pytest.mark.both_environments

USERS = [f"u{number}" for number in range(24)]
GATE = asyncio.Event()
"""Set when the handler of the new file may go on with an event that waits."""

File = Literal["old", "new", "newest"]


def declared(settings: Settings, clock: ManualClock, file: File) -> FeatureStore:
    """Return the store of a file; the function of each gives its events another mark."""
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", name="total", default=[])
    async def total(user_id: str, event: ServiceEvent) -> list[str]:
        if event.payload.get("waits") and file == "new":
            await GATE.wait()
        before: list[str] = await store.get_feature("total", user_id)
        return [*before, f"{file} {event.event_id}"]

    @feature(entity=User, trigger="buy", default="")
    async def other(user_id: str, event: ServiceEvent) -> str:
        return file

    if file != "old":

        @feature(entity=User, trigger="buy", default=0)
        async def added(user_id: str, event: ServiceEvent) -> int:
            return 1 + int(await store.get_feature("added", user_id))

    return store


@pytest.fixture
async def old(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    GATE.clear()
    async with declared(settings, clock, "old") as store:
        yield store


@pytest.fixture
async def new(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    async with declared(settings, clock, "new") as store:
        yield store


@asynccontextmanager
async def started(store: FeatureStore) -> AsyncIterator[Worker]:
    """Run a worker, and stop it at the end."""
    worker = Worker(store)
    task = asyncio.create_task(worker.run())
    try:
        await until(lambda: worker.health().ok)
        yield worker
    finally:
        worker.stop()
        await task


async def publish(store: FeatureStore, name: str) -> None:
    for user in USERS:
        await store.publish("buy", user, {}, event_id=f"{name}-{user}")


async def done(store: FeatureStore) -> None:
    async def is_done() -> bool:
        return await backlog(store) == 0

    await until(is_done)


async def totals(store: FeatureStore) -> list[list[str]]:
    """Return what is served, without the users' names; each different value once."""
    rows = await store.get_features(["total"], USERS)
    found = {tuple(each.split("-")[0] for each in row["total"]) for row in rows.values()}
    return [list(each) for each in sorted(found)]


async def sees_new_version(store: FeatureStore) -> None:
    """Wait until the worker of a process knows that workers may run a version of a backfill."""
    engine = await runtime_of(store).open()

    def is_known() -> bool:
        found = [each.state for each in engine.catalog.state.versions() if each.number > 1]
        return bool(found) and found != ["building"]

    await until(is_known)


class Log:
    """The records that were written since a test began."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self._text = ""

    async def has(self, event: str) -> dict[str, Any]:
        """Wait for a record, and return it."""

        def is_written() -> bool:
            log.flush()
            self._text += self._capsys.readouterr().err
            return bool(records(self._text, event))

        await until(is_written)
        return records(self._text, event)[0]


async def test_only_the_newer_function_runs_where_nothing_else_has_changed(
    settings: Settings, clock: ManualClock, new: FeatureStore
) -> None:
    async with declared(settings, clock, "newest") as newest, started(new):
        await publish(new, "a")
        await done(new)
        async with started(newest):
            await publish(new, "b")
            await done(new)
            assert await totals(new) == [["new a", "newest b"]]
            # A restart of the earlier file is not a deployment of it.
            async with declared(settings, clock, "new") as again, started(again):
                await publish(new, "c")
                await done(new)
        await publish(new, "d")
        await done(new)
        assert await totals(new) == [["new a", "newest b", "newest c", "new d"]]


async def test_workers_of_one_file_share_the_partitions(
    settings: Settings, clock: ManualClock, new: FeatureStore
) -> None:
    async with declared(settings, clock, "new") as same, started(new) as one, started(same) as two:
        leases = (await runtime_of(new).open()).backends.leases

        async def are_both_listed() -> bool:
            return {one.name, two.name} <= {*await leases.heartbeat(one.name, [])}

        await until(are_both_listed)
        await new.backfills.run("total", switch=True)
        await until(are_both_listed)


async def test_no_event_is_handled_by_the_old_function_once_the_new_worker_has_started(
    old: FeatureStore, new: FeatureStore
) -> None:
    async with started(old):
        await publish(old, "a")
        await done(old)
        async with started(new):
            await publish(old, "b")
            await done(old)
            assert await totals(new) == [["old a", "new b"]]


async def test_a_backfill_in_a_rolling_deploy_is_run_by_the_new_file_alone(
    old: FeatureStore, new: FeatureStore
) -> None:
    async with started(old):
        await publish(old, "a")
        await done(old)
        async with started(new):
            await new.publish("buy", "busy", {"waits": True}, event_id="busy")
            backfill = asyncio.create_task(new.backfills.run("total", switch=True))
            # The old worker is idle and follows at once; the new one has to finish its batch.
            await sees_new_version(old)
            await publish(old, "b")
            GATE.set()
            await backfill
            await publish(old, "c")
            await done(old)
            await new.drain()
            assert await totals(new) == [["new a", "new b", "new c"]]
            added = await new.get_features(["added"], USERS)
            assert {row["added"] for row in added.values()} == {2}
            for user in USERS:
                rows = await past(new, "total@2", user)
                assert [mark for row in rows for mark in row if "old" in mark] == []


async def test_a_waiting_worker_never_runs_a_version_of_other_code_and_a_rollback_does(
    settings: Settings,
    clock: ManualClock,
    old: FeatureStore,
    new: FeatureStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    GATE.set()
    async with started(old):
        await publish(old, "a")
        await done(old)
        async with started(new):
            await new.backfills.run("total", switch=True)
        await publish(old, "b")
        told = await Log(capsys).has("worker waits: versions were made with other code")
        assert told["versions"] == ["total@2"]
        with pytest.raises(CodeChangedError, match="total@2 was made by a backfill with other"):
            await Worker(old).drain()
        assert await backlog(old) == len(USERS)
        # Deployed again on purpose, by a process that begins after the switch.
        async with declared(settings, clock, "old") as again, started(again):
            await done(again)
        assert await totals(new) == [["new a", "old b"]]


async def test_a_backfill_waits_for_workers_of_its_file_and_is_continued_with_no_other(
    settings: Settings,
    clock: ManualClock,
    old: FeatureStore,
    new: FeatureStore,
    capsys: pytest.CaptureFixture[str],
) -> None:
    GATE.set()
    async with started(old):
        await publish(old, "a")
        await done(old)
        backfill = asyncio.create_task(new.backfills.run("total"))
        told = await Log(capsys).has("backfill waits: workers have other code of the feature")
        assert (told["feature"], told["version"]) == ("total", 2)
        with pytest.raises(BackfillRefusedError, match=r"with other code .*cancel total"):
            await old.backfills.run("total")
        await publish(old, "b")
        await done(old)  # by the old worker, which goes on
        async with started(new):
            await backfill
            await new.backfills.switch("total")
            assert await totals(new) == [["new a", "new b"]]


async def test_a_drain_right_after_a_switch_waits_until_the_version_of_other_code_has_left(
    settings: Settings, clock: ManualClock, new: FeatureStore
) -> None:
    GATE.set()
    await publish(new, "a")
    await new.drain()
    async with started(new):
        await new.backfills.run("total", switch=True)
    async with declared(settings, clock, "newest") as newest, started(newest):
        await newest.backfills.run("total", switch=True)
    # It begins after the switch, while total@2 of the file before is still kept fresh.
    async with declared(settings, clock, "newest") as again:
        await publish(again, "b")
        switched_at = clock.now()
        await again.drain()
        assert clock.now() - switched_at >= timedelta(seconds=10)
        assert await backlog(again) == 0
        assert await totals(again) == [["newest a", "newest b"]]
