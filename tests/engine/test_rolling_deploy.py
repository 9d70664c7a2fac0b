"""Workers of an old and a new version side by side: every declared feature gets every event."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import backlog, records, run_set, until

pytestmark = pytest.mark.both_environments

EVENTS = 100


@pytest.fixture
def old(settings: Settings, clock: ManualClock) -> FeatureStore:
    """Return the store as the old version declares it."""
    return version(settings, clock, "counted")


@pytest.fixture
def new(settings: Settings, clock: ManualClock) -> FeatureStore:
    """Return the store as the new version declares it: with another feature."""
    return version(settings, clock, "counted", "added")


def version(settings: Settings, clock: ManualClock, *names: str) -> FeatureStore:
    """Return a store with features that hold the number of a user's last event."""
    store, user = empty(settings, clock)
    for name in names:

        @feature(entity=user, trigger="buy", name=name)
        async def last(user_id: str, event: ServiceEvent) -> int:
            return int(event.payload["number"])

    return store


def empty(settings: Settings, clock: ManualClock) -> tuple[FeatureStore, type]:
    """Return a store without features, and its entity."""
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    return store, User


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


async def publish(store: FeatureStore, start: int = 0) -> None:
    for number in range(start, start + EVENTS):
        await store.publish("buy", f"u{number}", {"number": number})


async def handled(store: FeatureStore, name: str) -> int:
    """Return how many users have a value of a feature."""
    rows = await store.get_features([name], [f"u{number}" for number in range(2 * EVENTS)])
    return sum(row[name] is not None for row in rows.values())


async def is_done(store: FeatureStore) -> bool:
    return await backlog(store) == 0


async def test_a_new_feature_gets_every_event_from_the_start_of_its_first_worker(
    old: FeatureStore, new: FeatureStore
) -> None:
    async with old, new, started(old):
        await publish(old)
        await until(lambda: is_done(old))
        async with started(new):
            await publish(old, EVENTS)
            await until(lambda: is_done(old))
            assert await handled(new, "added") == EVENTS
            assert await handled(new, "counted") == 2 * EVENTS
        assert await new.dead_letters.list() == []


async def test_an_event_that_the_old_worker_is_running_is_run_again_with_the_new_feature(
    settings: Settings, clock: ManualClock, new: FeatureStore
) -> None:
    old, user = empty(settings, clock)
    began, may_end = asyncio.Event(), asyncio.Event()

    @feature(entity=user, trigger="buy", name="counted")
    async def slow(user_id: str, event: ServiceEvent) -> int:
        began.set()
        await may_end.wait()
        return -1

    async with old, new, started(old):
        await old.publish("buy", "u1", {"number": 1})
        await began.wait()
        async with started(new):
            may_end.set()
            await until(lambda: is_done(new))
            assert await new.get_features(["counted", "added"], ["u1"]) == {
                "u1": {"counted": 1, "added": 1}
            }


async def test_the_old_worker_continues_when_the_new_one_dies(
    settings: Settings, clock: ManualClock
) -> None:
    short = settings.replace(worker={"lease_ttl": 1.0})
    old, new = version(short, clock, "counted"), version(short, clock, "counted", "added")
    async with old, new, started(old):
        # It claims all partitions and sends no further heartbeat.
        leases = (await runtime_of(new).open()).backends.leases
        declared = (await run_set(new)).declared

        async def claims() -> bool:
            # With so short a lease, a server has a quarter of a second for its answer.
            with suppress(BackendError):
                await leases.register("dying", declared)
                return bool(await leases.claim("dying", range(settings.partitions + 1)))
            return False

        await until(claims)
        await publish(old)
        await until(lambda: is_done(old))
        assert await handled(old, "counted") == EVENTS


async def test_the_old_worker_continues_when_the_new_one_is_rolled_back(
    old: FeatureStore, new: FeatureStore
) -> None:
    async with old, new, started(old):
        async with started(new):
            await publish(old)
            await until(lambda: is_done(old))
            assert await handled(new, "added") == EVENTS
        await old.publish("buy", "u1", {"number": 1_000})
        await until(lambda: is_done(old))
        assert await old.get_feature("counted", "u1") == 1_000


async def test_a_renamed_feature_gets_every_event_although_old_workers_are_added(
    settings: Settings, clock: ManualClock
) -> None:
    before, after = version(settings, clock, "total"), version(settings, clock, "sum_of_all")
    async with before, after, started(before), started(after), started(before):
        await publish(before)
        await until(lambda: is_done(after))
        assert await handled(after, "sum_of_all") == EVENTS


async def test_a_new_schedule_runs_for_every_entity(
    settings: Settings, clock: ManualClock, old: FeatureStore
) -> None:
    new, user = empty(settings, clock)

    @feature(entity=user, trigger="buy")
    async def counted(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> int:
        return 7

    @feature(
        entity=user,
        refresh="1h",
        materialize=True,
        sql="SELECT DISTINCT entity_id AS user_id, 3 AS value FROM events WHERE event_type = 'buy'",
    )
    def from_sql(user_id: str) -> int: ...  # type: ignore[empty-body]

    async with old, new, started(old):
        await publish(old)
        await until(lambda: is_done(old))
        async with started(new):
            await until(lambda: all_have(new, "score", EVENTS))
            await until(lambda: all_have(new, "from_sql", EVENTS))


async def all_have(store: FeatureStore, name: str, count: int) -> bool:
    return await handled(store, name) == count


async def test_a_worker_that_waits_for_others_says_so_and_names_the_features(
    old: FeatureStore, new: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    written = ""

    def logged(event: str) -> bool:
        nonlocal written
        log.flush()
        written += capsys.readouterr().err
        return bool(records(written, event))

    async with old, new, started(old) as waiting:
        async with started(new):
            await until(lambda: logged("worker waits: others declare more features"))
        await until(lambda: logged("worker resumes: no others declare more features"))
    (told,) = records(written, "worker waits: others declare more features")
    assert told["level"] == "info"
    assert told["worker"] == waiting.name
    assert told["only_there"] == ["added on buy"]
    assert told["only_here"] == []
    (resumed,) = records(written, "worker resumes: no others declare more features")
    assert resumed["level"] == "warning"
    assert resumed["not_run"] == ["added on buy"]
