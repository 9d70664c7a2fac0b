"""A server that is unavailable for a while fails no event."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.clock import SystemClock
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendUnavailableError, EventError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, past, until

pytestmark = pytest.mark.both_environments


async def test_a_handler_that_cannot_read_during_an_outage_is_run_again(
    store: FeatureStore, user: type
) -> None:
    away = 2

    @feature(entity=user, trigger="buy", max_retries=0)
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal away
        away -= 1
        if away >= 0:
            raise BackendUnavailableError("cut off")
        return 1

    await store.publish("buy", "u1")
    await store.drain()
    assert await store.get_feature("total", "u1") == 1
    assert await store.dead_letters.list() == []


async def test_a_refresh_during_an_outage_is_run_again(store: FeatureStore, user: type) -> None:
    away = 1

    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> int:
        nonlocal away
        away -= 1
        if away >= 0:
            raise BackendUnavailableError("cut off")
        return 7

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    for number in range(3):
        await store.set_feature("total", f"u{number}", 1)
    await store.drain()
    rows = await store.get_features(["score"], ["u0", "u1", "u2"])
    assert [row["score"] for row in rows.values()] == [7, 7, 7]


@pytest.mark.parametrize(
    "moment",
    [
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(-timedelta(hours=12))),
    ],
)
async def test_a_moment_that_not_every_time_zone_can_write_is_refused(
    store: FeatureStore, user: type, moment: datetime
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    with pytest.raises(EventError, match="out of range"):
        await store.publish("buy", "u1", timestamp=moment)
    with pytest.raises(InvalidInputError, match="out of range"):
        await store.set_feature("total", "u1", 1, as_of=moment)


async def test_groups_that_share_a_schedule_each_run_it_once(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    runs: list[str] = []

    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> int:
        runs.append(user_id)
        return 1

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    await runtime_of(store).rebind(settings.replace(partitions=1), clock)
    ids = [f"u{number:04d}" for number in range(1_700)]
    await asyncio.gather(*(store.set_feature("total", entity_id, 1) for entity_id in ids))
    for group in ("one", "other"):
        chosen = settings.replace(partitions=1, worker={"consumer_group": group})
        await runtime_of(store).rebind(chosen, clock)
        await store.drain()
    await store.drain()
    assert sorted(runs) == sorted(ids * 2)
    assert len(await past(store, "score", ids[-1])) == 2


def test_a_store_can_be_opened_by_many_event_loops_at_once(settings: Settings) -> None:
    store = FeatureStore(settings=settings, clock=SystemClock())

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    opened: list[object] = []
    together = threading.Barrier(4)

    async def use() -> None:
        engine = await runtime_of(store).open()
        opened.append(await store.get_feature("total", "u1"))
        if engine is not (await runtime_of(store).open()):
            opened.append("another")
        await asyncio.to_thread(together.wait)
        await store.close()

    def run() -> None:
        together.wait()
        asyncio.run(use())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert opened == [None] * 4


async def test_a_worker_that_is_stopped_while_it_claims_leaves_nothing_behind(
    store: FeatureStore, user: type, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await runtime_of(store).rebind(settings.replace(worker={"lease_ttl": 60}), SystemClock())
    engine = await runtime_of(store).open()
    worker, claim = Worker(store), engine.backends.leases.claim

    async def claim_slowly(name: str, partitions: object) -> object:
        claimed = await claim(name, partitions)  # type: ignore[arg-type]
        worker.stop()
        await asyncio.sleep(0.05)
        return claimed

    monkeypatch.setattr(engine.backends.leases, "claim", claim_slowly)
    await worker.run()
    assert {lag.owner for lag in await engine.backends.bus.lag()} == {None}


async def test_a_tick_after_a_takeover_is_not_taken_for_one_that_overruns(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    @feature(entity=user, refresh="1h", materialize=True)
    async def score(user_id: str) -> datetime:
        return clock.now()

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    await runtime_of(store).rebind(settings.replace(partitions=1), clock)
    ids = [f"u{number:04d}" for number in range(700)]
    await asyncio.gather(*(store.set_feature("total", entity_id, 1) for entity_id in ids))
    # This worker handles the first page, the next worker handles the rest.
    worker = Worker(store)
    running = asyncio.create_task(worker.run())

    async def begun() -> bool:
        (row,) = (await store.get_features(["score"], [ids[0]])).values()
        return row["score"] is not None

    await until(begun)
    worker.stop()
    await running
    other = FeatureStore(settings=store.settings, clock=clock)
    _declare_again(other, clock)
    await other.drain()
    await other.close()
    clock.advance("1h")
    await store.drain()
    rows = await store.get_features(["score"], ids)
    assert {row["score"] for row in rows.values()} == {clock.now().astimezone(UTC)}


def _declare_again(store: FeatureStore, clock: ManualClock) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, refresh="1h", materialize=True)
    async def score(user_id: str) -> datetime:
        return clock.now()

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1


def test_sync_functions_work_in_one_event_loop_after_the_other(settings: Settings) -> None:
    store = FeatureStore(settings=settings, clock=SystemClock())

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User)
    def length(user_id: str) -> int:
        return len(user_id)

    async def read() -> object:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await store.get_feature("length", "u1")

    # A loop may be closed while it still means to look whether there is more to do.
    assert [asyncio.run(read()) for _ in range(30)] == [2] * 30
    asyncio.run(store.close())
