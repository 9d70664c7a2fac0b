"""Handlers that write to the same entities: nobody starves, and little runs twice."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from itertools import count, islice

import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.core.partitioning import partition_of
from headwater.declarations.runtime import runtime_of
from headwater.doctor.workload import findings
from headwater.engine.worker.contention import Contention, read_contended, write_contended
from headwater.engine.worker.lanes import Lane
from headwater.model.values import Cell, EntityKey
from headwater.ports import Batch, BatchOutcome, Change, Delivery, Lease
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import metric, until

EACH = 30
PARTITIONS = 4
SHOP = ("Shop", "s1")
OTHER_SHOP = ("Shop", "s2")


def users(partition: int, number: int) -> list[str]:
    """Return ids of users whose events are in one partition."""
    ids = (f"u{n}" for n in count())
    return list(islice((u for u in ids if partition_of(u, PARTITIONS) == partition), number))


async def briefly() -> None:
    await asyncio.sleep(0.002)


class Shops:
    """A store whose handler of an order reads a shop's total, waits, and writes the total."""

    def __init__(self, store: FeatureStore, wait: Callable[[], Awaitable[object]]) -> None:
        self.store = store
        self.runs: Counter[tuple[str, int]] = Counter()
        self.progress: dict[str, int] = {}
        """The orders of each user when the first user's last one was handled."""

        @entity(store)
        class User:
            user_id: str

        @entity(store)
        class Shop:
            shop_id: str

        @feature(entity=Shop, trigger="opened", default=0)
        def total(shop_id: str, event: ServiceEvent) -> int:
            return 0

        @feature(entity=User, trigger="order", default=0)
        async def orders(user_id: str, event: ServiceEvent) -> int:
            number, shop = event.payload["number"], event.payload["shop"]
            self.runs[user_id, number] += 1
            if shop:
                before = await store.get_feature("total", shop)
                await wait()
                await store.set_feature("total", shop, before + 1)
            done = int(await store.get_feature("orders", user_id)) + 1
            if done == EACH and not self.progress:
                self.progress = await self.done(event.payload["users"])
            return done

    async def publish(
        self, ids: Sequence[str], each: int = 1, *, at_home: Collection[str] = ()
    ) -> None:
        await self.store.bus.publish_many(
            [
                ServiceEvent(
                    "order",
                    user_id,
                    {"number": n, "shop": "" if user_id in at_home else "s1", "users": ids},
                )
                for n in range(each)
                for user_id in ids
            ]
        )

    async def has_ordered(self, user_id: str) -> bool:
        return bool(await self.store.get_feature("orders", user_id))

    async def done(self, ids: Sequence[str]) -> dict[str, int]:
        return {user_id: int(await self.store.get_feature("orders", user_id)) for user_id in ids}


@pytest.mark.both_environments
async def test_partitions_whose_handlers_write_to_the_same_entity_progress_alike(
    settings: Settings, clock: ManualClock
) -> None:
    chosen = settings.replace(worker={"batch_size": 5})
    async with FeatureStore(settings=chosen, clock=clock) as store:
        shops = Shops(store, briefly)
        ids = [users(partition, 1)[0] for partition in range(PARTITIONS)]
        await shops.publish(ids, EACH)
        await store.drain()
        assert await shops.done(ids) == dict.fromkeys(ids, EACH)
        assert await store.get_feature("total", "s1") == EACH * PARTITIONS
        assert min(shops.progress.values()) >= EACH / 2
        assert shops.runs.total() < 2 * EACH * PARTITIONS


@pytest.mark.both_environments
async def test_two_workers_that_write_to_the_same_entity_lose_no_event(
    settings: Settings, clock: ManualClock
) -> None:
    chosen = settings.replace(worker={"batch_size": 5})
    stores = [FeatureStore(settings=chosen, clock=clock) for _ in range(2)]
    shops = [Shops(store, briefly) for store in stores]
    ids = [users(partition, 1)[0] for partition in range(PARTITIONS)]
    await shops[0].publish(ids, EACH)
    workers = [Worker(store) for store in stores]
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(worker.run()) for worker in workers]
            await stores[0].drain()
            for worker in workers:
                worker.stop()
            await asyncio.wait(running)
        assert await shops[0].done(ids) == dict.fromkeys(ids, EACH)
        assert await stores[0].get_feature("total", "s1") == EACH * PARTITIONS
    finally:
        for store in stores:
            await store.close()


@pytest.mark.both_environments
async def test_a_conflict_repeats_only_the_handlers_that_saw_what_changed(
    store: FeatureStore,
) -> None:
    changed = asyncio.Event()
    changed.set()
    shops = Shops(store, changed.wait)
    before, first, *others = users(0, 10)
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    try:
        await shops.publish([before])
        await until(partial(shops.has_ordered, before))
        changed.clear()
        await shops.publish([*others, first], at_home=others)
        await until(lambda: shops.runs.total() == 10)
        await store.set_feature("total", "s1", 100)
        changed.set()
        await until(partial(shops.has_ordered, first))
    finally:
        worker.stop()
        await running
    assert shops.runs.pop((first, 0)) == 2
    assert set(shops.runs.values()) == {1}
    assert await store.get_feature("total", "s1") == 101
    assert await shops.done(others) == dict.fromkeys(others, 1)


async def test_handlers_of_a_batch_that_write_to_one_entity_run_about_twice(
    store: FeatureStore,
) -> None:
    shops = Shops(store, briefly)
    ids = users(0, 20)
    await shops.publish(ids)
    await store.drain()
    assert await store.get_feature("total", "s1") == len(ids)
    assert shops.runs.total() <= 3 * len(ids)


def lane(partition: int) -> Lane:
    return Lane(Lease(partition, "w1", 1), 100)


def outcome(of: Lane, events: int, *written: EntityKey) -> BatchOutcome:
    """Return the outcome of events that all write to some entities."""
    deliveries = [Delivery(str(n), ServiceEvent("order", f"u{n}", {})) for n in range(events)]
    cell = Cell(msgspec.Raw(b"1"), 0, 0)
    return BatchOutcome(
        batch=Batch(of.lease, deliveries, {}),
        versions=dict.fromkeys(written, 0),
        states={key: {} for key in written},
        changes=[
            Change("total", *key, "int", cell, delivery.position)
            for key in written
            for delivery in deliveries
        ],
        handled=[],
    )


def fighting(contention: Contention, *keys: EntityKey) -> Lane:
    """Return a lane with a batch of 100 events that conflicted with others."""
    fighter = lane(next(PARTITION))
    contention.conflicted(fighter, outcome(fighter, 100, *keys), keys)
    return fighter


PARTITION = count()


def test_lanes_that_contend_for_an_entity_run_in_the_order_in_which_they_asked() -> None:
    contention = Contention()
    first, second = fighting(contention, SHOP), fighting(contention, SHOP)
    apart = fighting(contention, OTHER_SHOP)
    assert contention.takes_turn(second)
    assert not contention.takes_turn(first)
    assert contention.takes_turn(apart)
    assert [contention.may_read(each) for each in (first, second)] == [False, True]
    contention.end_turn(second)
    assert contention.takes_turn(first)
    assert not contention.takes_turn(second)


def test_a_lane_that_has_lost_its_turn_keeps_its_place() -> None:
    contention = Contention()
    first, second = fighting(contention, SHOP), fighting(contention, SHOP)
    assert contention.takes_turn(first)
    assert not contention.takes_turn(second)
    contention.conflicted(first, outcome(first, 50, SHOP), [SHOP])
    assert contention.takes_turn(first)


def test_a_lane_without_events_or_without_its_partition_lets_the_next_one_run() -> None:
    contention = Contention()
    first, second, third = (fighting(contention, SHOP) for _ in range(3))
    for each in (first, second, third):
        contention.takes_turn(each)
    contention.skip([first], [])
    assert contention.may_read(second)
    contention.retain([third])
    assert contention.takes_turn(third)


def test_a_winner_of_the_process_that_is_ahead_joins_the_queue() -> None:
    contention = Contention()
    winner, loser = lane(100), fighting(contention, SHOP)
    assert contention.takes_turn(winner)
    contention.committed(winner, outcome(winner, 10, SHOP), 1.0)
    assert contention.takes_turn(loser)
    assert not contention.takes_turn(winner)


def test_batches_of_lanes_that_contend_take_about_a_quarter_of_a_second() -> None:
    contention = Contention()
    one = fighting(contention, SHOP)
    assert contention.size(one) == 50
    assert contention.takes_turn(one)
    contention.committed(one, outcome(one, 50, SHOP), 1.0)
    assert contention.size(one) == 12
    contention.committed(one, outcome(one, 12, SHOP), 0.01)
    assert contention.size(one) == 24
    assert contention.size(lane(100)) == 100


def test_a_process_that_loses_to_another_shortens_its_batches_until_it_wins_then_yields() -> None:
    contention = Contention()
    one = fighting(contention, SHOP)
    assert contention.takes_turn(one)
    contention.conflicted(one, outcome(one, 50, SHOP), [SHOP])
    contention.conflicted(one, outcome(one, 25, SHOP), [SHOP])
    assert contention.size(one) == 12
    assert contention.committed(one, outcome(one, 12, SHOP), 0.1) == 0.1
    contention.conflicted(one, outcome(one, 24, SHOP), [SHOP])
    assert contention.size(one) == 24, "both take rounds now"


def test_a_lane_of_which_few_events_contend_waits_only_to_repeat_them() -> None:
    contention = Contention()
    one, other = fighting(contention, SHOP), fighting(contention, SHOP)
    assert contention.takes_turn(other)
    assert not contention.takes_turn(one)
    few = outcome(one, 100, SHOP)
    few = msgspec.structs.replace(few, changes=few.changes[:10])
    contention.conflicted(one, few, [SHOP])
    assert not contention.takes_turn(one)
    contention.end_turn(one)
    contention.committed(one, few, 1.0)
    assert contention.takes_turn(one)
    assert contention.size(one) == 100


def test_a_fight_is_forgotten_when_no_other_lane_waits_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contention = Contention()
    one = fighting(contention, SHOP)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    contention.committed(one, outcome(one, 10, SHOP), 1.0)
    assert not one.contends
    assert contention.size(one) == 100


def test_a_gauge_counts_the_entities_that_are_fought_over(monkeypatch: pytest.MonkeyPatch) -> None:
    contention = Contention()
    fighting(contention, SHOP, OTHER_SHOP)
    fighting(contention, SHOP)
    assert contention.conflicts() == {SHOP: 2, OTHER_SHOP: 1}
    assert metric("headwater_contended_entities", entity="Shop") == 2
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 11)
    assert contention.conflicts() == {}
    assert metric("headwater_contended_entities", entity="Shop") == 0


async def test_a_worker_notes_the_entity_over_which_its_partitions_fight(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.engine.worker.contention._NOTE_SECONDS", 0.01)
    shops, engine = Shops(store, briefly), await runtime_of(store).open()

    async def is_noted() -> bool:
        return [x.entity_id for x in await read_contended(engine)] == ["s1"]

    await shops.publish([users(partition, 1)[0] for partition in range(PARTITIONS)], 5)
    worker = Worker(store)
    running = asyncio.create_task(worker.run())
    try:
        await until(is_noted)
    finally:
        worker.stop()
        await running


@pytest.mark.parametrize("private", [False, True])
@pytest.mark.both_environments
async def test_the_doctor_names_the_entity_that_is_fought_over(
    settings: Settings, clock: ManualClock, *, private: bool
) -> None:
    chosen = settings.replace(record={"include_content": not private})
    async with FeatureStore(settings=chosen, clock=clock) as store:
        Shops(store, briefly)
        assert [x for x in await findings(store, []) if x.check == "contention"] == []
        await write_contended(await runtime_of(store).open(), {SHOP: 1234})
        clock.advance("2m")
        (finding,) = [x for x in await findings(store, []) if x.check == "contention"]
        named = "Shop" if private else "Shop s1"
        assert finding.found.startswith(
            f"{named} is written by several partitions at once: 1,234 conflicts"
        )
        clock.advance("10m")
        assert [x for x in await findings(store, []) if x.check == "contention"] == []


async def test_an_erased_entity_is_not_noted_as_fought_over(store: FeatureStore) -> None:
    Shops(store, briefly)
    engine = await runtime_of(store).open()
    await write_contended(engine, {SHOP: 2, OTHER_SHOP: 1})
    await store.set_feature("total", "s1", 1)
    await store.admin.forget("Shop", "s1", reason="asked")
    assert await read_contended(engine) == []
    await write_contended(engine, {SHOP: 2, OTHER_SHOP: 1})
    assert [x.entity_id for x in await read_contended(engine)] == ["s2"]
