"""Stores that are used by one event loop after another, as in scripts and notebooks."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import asyncpg
import pytest
import uvloop

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.running_versions import RunningVersions
from headwater.settings.schema import Settings
from tests.engine.support import past, until

_RUNS = 5
Run = Callable[[Coroutine[Any, Any, Any]], Any]


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    return store


async def connections(settings: Settings) -> tuple[set[str], set[int]]:
    """Return the ids of the connections to Redis and to the tables of the store."""
    redis = Redis(settings.redis.url, timeout=60, connect_timeout=60)
    await redis.open()
    own = await redis.call(command("any", "CLIENT", "ID"))
    clients = (await redis.call(command("any", "CLIENT", "LIST"))).decode().splitlines()
    await redis.close()
    ids = {each.split()[0].removeprefix("id=") for each in clients if "name=headwater " in each}
    database = await asyncpg.connect(settings.postgres.url)
    name = f"headwater/{settings.postgres.schema}"
    sessions = await database.fetch(
        "SELECT pid FROM pg_stat_activity WHERE application_name = $1", name
    )
    await database.close()
    return ids - {str(own)}, {pid for (pid,) in sessions}


async def at_most(settings: Settings, before: tuple[set[str], set[int]]) -> None:
    """Wait until there are no connections but those of before."""

    async def gone() -> bool:
        now = await connections(settings)
        return now[0] <= before[0] and now[1] <= before[1]

    await until(gone)


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """Disable garbage collection, so that nothing is closed by chance."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_loop_that_ends_takes_its_connections_with_it(production: Settings, run: Run) -> None:
    store = shop(production)
    before = asyncio.run(connections(production))

    async def use(number: int) -> None:
        await store.set_feature("total", "u1", number)
        assert await past(store, "total") == list(range(number + 1))
        during = await connections(production)
        assert during[0] - before[0]
        assert during[1] - before[1]

    for number in range(_RUNS):
        run(use(number))
    asyncio.run(at_most(production, before))


@pytest.mark.parametrize("is_cut_off", [False, True])
def test_a_worker_that_its_loop_cancels_still_gives_its_partitions_back(
    production: Settings, monkeypatch: pytest.MonkeyPatch, *, is_cut_off: bool
) -> None:
    async def never(_: RunningVersions) -> None:
        await asyncio.Event().wait()

    if is_cut_off:  # in the middle of its claim
        monkeypatch.setattr(RunningVersions, "check", never)
    store = shop(production.replace(worker={"lease_ttl": 60}))
    running: list[object] = []

    async def leave_one_running() -> None:
        worker = Worker(store)
        running.append(asyncio.create_task(worker.run()))
        bus = (await runtime_of(store).open()).backends.bus

        async def owned() -> bool:
            return {lag.owner for lag in await bus.lag()} == {worker.name}

        await until(owned)

    async def owners() -> set[str | None]:
        async with store:
            return {lag.owner for lag in await store.admin.lag()}

    asyncio.run(leave_one_running())
    assert asyncio.run(owners()) == {None}
