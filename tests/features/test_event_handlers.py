"""Handlers: sync and async, one event type or many, and the worker's settings."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import PATIENCE_SECONDS, until


async def test_sync_and_async_handlers_give_the_same_values(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger="buy")
    def in_a_thread(user_id: str, event: ServiceEvent) -> float:
        before = store.sync.get_feature("in_a_thread", user_id) or 0.0
        return float(before + event.payload["amount"])

    @feature(entity=user, trigger="buy")
    async def in_the_loop(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("in_the_loop", user_id) or 0.0
        return float(before + event.payload["amount"])

    for amount in (1.0, 2.0, 3.5):
        await store.publish("buy", "u1", {"amount": amount})
    await store.drain()
    assert await store.get_features(["in_a_thread", "in_the_loop"], ["u1"]) == {
        "u1": {"in_a_thread": 6.5, "in_the_loop": 6.5}
    }


async def test_a_value_that_expires_while_a_handler_runs_stays_visible_to_it(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    seen: list[Any] = []

    @feature(entity=user, trigger="code", ttl="10m")
    async def code(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["code"])

    @feature(entity=user, trigger="check")
    async def check(user_id: str, event: ServiceEvent) -> None:
        clock.advance("1h")
        seen.append(await store.get_feature("code", user_id))
        seen.append((await store.get_features(["code"], [user_id]))[user_id]["code"])

    await store.publish("code", "u1", {"code": "1234"})
    await store.drain()
    await store.publish("check", "u1")
    await store.drain()
    assert seen == ["1234", "1234"]
    assert await store.get_feature("code", "u1") is None


async def test_a_sync_handler_sees_its_own_writes_and_they_count_with_it(
    store: FeatureStore, user: type
) -> None:
    seen: list[Any] = []

    @feature(entity=user, trigger="buy", max_retries=0)
    def total(user_id: str, event: ServiceEvent) -> int:
        store.sync.set_feature("total", user_id, 5)
        store.sync.set_feature("total", "friend", 6)
        seen.append(store.sync.get_features(["total"], [user_id, "friend"]))
        if event.payload["fail"]:
            raise ValueError("after its writes")
        return 7

    await store.publish("buy", "u1", {"fail": True})
    await store.drain()
    assert seen == [{"u1": {"total": 5}, "friend": {"total": 6}}]
    assert await store.get_features(["total"], ["u1", "friend"]) == {
        "u1": {"total": None},
        "friend": {"total": None},
    }
    await store.publish("buy", "u1", {"fail": False})
    await store.drain()
    assert await store.get_features(["total"], ["u1", "friend"]) == {
        "u1": {"total": 7},
        "friend": {"total": 6},
    }


async def test_a_list_of_triggers_serves_every_event_type_in_it(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, trigger=["purchase", "refund"])
    async def balance(user_id: str, event: ServiceEvent) -> float:
        sign = 1 if event.event_type == "purchase" else -1
        before = await store.get_feature("balance", user_id) or 0.0
        return float(before + sign * event.payload["amount"])

    await store.publish("purchase", "u1", {"amount": 30.0})
    await store.publish("refund", "u1", {"amount": 10.0})
    await store.publish("gift", "u1", {"amount": 99.0})
    await store.drain()
    assert await store.get_feature("balance", "u1") == 20.0


async def test_every_feature_of_an_event_type_runs_in_declared_order(
    store: FeatureStore, user: type
) -> None:
    ran: list[str] = []
    for name in ("zeta", "alpha", "mu"):

        def handler(user_id: str, event: ServiceEvent, name: str = name) -> int:
            ran.append(name)
            return 1

        feature(entity=user, name=name, trigger="buy")(handler)
    await store.publish("buy", "u1")
    await store.drain()
    assert ran == ["zeta", "alpha", "mu"]


@pytest.mark.usefixtures("sync_time")
async def test_a_batch_of_quick_sync_handlers_costs_few_thread_hops(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    threads: list[int] = []

    @feature(entity=user, trigger="buy")
    def total(user_id: str, event: ServiceEvent) -> int:
        threads.append(threading.get_ident())
        return 1

    await runtime_of(store).rebind(settings.replace(worker={"concurrency": 64}), clock)
    for number in range(200):
        await store.publish("buy", f"u{number}")
    await store.drain()
    assert len(threads) == 200
    assert threading.get_ident() not in threads
    assert len(set(threads)) == 1


async def test_sync_handlers_that_wait_run_side_by_side(store: FeatureStore, user: type) -> None:
    meeting = threading.Barrier(8, timeout=PATIENCE_SECONDS)

    @feature(entity=user, trigger="meet", max_retries=0)
    def met(user_id: str, event: ServiceEvent) -> bool:
        meeting.wait()
        return True

    for number in range(8):
        await store.publish("meet", f"u{number}")
    await store.drain()
    assert await store.dead_letters.list() == []


async def test_store_sync_is_refused_where_it_would_block_the_loop(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user)
    def name(user_id: str) -> str:
        return "Ada"

    with pytest.raises(InvalidInputError, match="await the verb"):
        store.sync.get_feature("name", "u1")
    assert await asyncio.to_thread(store.sync.get_feature, "name", "u1") == "Ada"


async def test_batch_size_bounds_the_events_of_a_batch(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    at_once = 0
    most = 0

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        return 1

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1, worker={"batch_size": 3}), clock
    )
    for number in range(12):
        await store.publish("buy", f"u{number}")
    await store.drain()
    assert most == 3


async def test_concurrency_bounds_the_entities_at_once(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    at_once = 0
    most = 0

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.001)
        at_once -= 1
        return 1

    await runtime_of(store).rebind(
        settings.replace(home=settings.home + "/one", partitions=1, worker={"concurrency": 2}),
        clock,
    )
    for number in range(12):
        await store.publish("buy", f"u{number}")
    await store.drain()
    assert most == 2


async def test_each_consumer_group_handles_every_event(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    seen: list[str] = []

    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        seen.append(store.settings.worker.consumer_group)
        return 1

    await store.publish("buy", "u1")
    await store.drain()
    await runtime_of(store).rebind(settings.replace(worker={"consumer_group": "others"}), clock)
    await store.drain()
    await store.drain()
    assert seen == ["headwater_workers", "others"]


@pytest.mark.parametrize("settings", ["embedded"], indirect=True)
async def test_an_idle_worker_without_a_wake_socket_polls(
    store: FeatureStore, user: type, settings: Settings, clock: ManualClock
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return 1

    await runtime_of(store).rebind(settings.replace(worker={"poll_interval": 0.01}), clock)
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    await until(lambda: remove_wake_socket(Path(settings.home)))
    await store.publish("buy", "u1")
    await until(lambda: has_total(store))
    worker.stop()
    await running


def remove_wake_socket(home: Path) -> bool:
    """Remove the socket that wakes a worker; return whether there was one."""
    addresses = list(home.glob("workers/*.sock"))
    for address in addresses:
        address.unlink()
    return bool(addresses)


async def has_total(store: FeatureStore) -> bool:
    return bool(await store.get_feature("total", "u1") == 1)


async def test_a_worker_that_joins_gets_its_share_also_while_events_wait(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    await runtime_of(store).rebind(
        settings.replace(worker={"batch_size": 1, "lease_ttl": 2}), store.clock
    )
    may_end = asyncio.Semaphore(0)

    @feature(entity=user, trigger="seen")
    async def slow(user_id: str, event: ServiceEvent) -> int:
        await may_end.acquire()
        return 1

    await store.bus.publish_many([ServiceEvent("seen", f"u{number}") for number in range(2_000)])
    first, second = Worker(store), Worker(store)
    running = [asyncio.create_task(first.run())]

    async def owned_by(worker: Worker) -> int:
        return [lag.owner for lag in await store.admin.lag()].count(worker.name)

    async def all_by_the_first() -> bool:
        return await owned_by(first) == 5

    async def some_by_the_second() -> bool:
        may_end.release()
        return await owned_by(second) >= 2

    await until(all_by_the_first)
    running.append(asyncio.create_task(second.run()))
    await until(some_by_the_second)
    assert sum(lag.waiting for lag in await store.admin.lag()) > 1_000
    for _ in range(2_000):
        may_end.release()
    for worker in (first, second):
        worker.stop()
    await asyncio.gather(*running)


@pytest.mark.both_environments
async def test_a_sync_handler_reads_entities_of_its_batch_in_its_own_thread(
    store: FeatureStore, user: type
) -> None:
    seen: list[Any] = []

    @feature(entity=user, trigger="buy", default=0)
    def total(user_id: str, event: ServiceEvent) -> int:
        before = store.sync.get_feature("total", user_id)
        store.sync.set_feature("total", user_id, before + 100)
        seen.append((before, store.sync.get_feature("total", user_id)))
        seen.append(store.sync.get_feature(total, "stranger"))
        return int(before) + 1

    @feature(entity=user, trigger="buy", ttl="1h")
    def doubled(user_id: str, event: ServiceEvent) -> int:
        return 2 * int(store.sync.get_feature("total", user_id))

    for _ in range(2):
        await store.publish("buy", "u1")
    await store.drain()
    assert seen == [(0, 100), 0, (1, 101), 0]
    rows = await store.get_features(["total", "doubled"], ["u1"])
    assert rows == {"u1": {"total": 2, "doubled": 4}}
