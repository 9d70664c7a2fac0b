"""Windows, from events to reads: values fall while nothing happens, late events count in time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from conformance.suite import until
from headwater import FeatureStore, FeatureValue, ServiceEvent, Worker, entity, feature
from headwater.core.clock import SystemClock
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

_HOUR = timedelta(hours=1)


@dataclass
class Purchase:
    amount: float
    category: str


class Shop:
    """A store with families of windows."""

    def __init__(
        self, settings: Settings, clock: ManualClock, windows: list[str] | None = None
    ) -> None:
        self.clock = clock
        self.failing: set[str] = set()
        self.store = store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        @feature(
            entity=User,
            trigger=["purchase", "refund"],
            window=windows or ["1h", "7d", "30d"],
            aggregate=["count", "sum", "avg", "max", "last(2)"],
            freshness="caught_up",
            default=[],
        )
        def spend(user_id: str, event: ServiceEvent) -> float | None:
            if event.payload.get("note") in self.failing:
                raise ValueError("refused")
            amount = event.payload["amount"]
            return None if amount == 0 else float(amount)

        @feature(
            entity=User,
            trigger="purchase",
            window="7d",
            aggregate=["sum", "count"],
            value="amount",
            by="category",
            where={"amount": {"$gt": 1}},
            max_keys=2,
        )
        def by_category(user_id: str, event: ServiceEvent) -> Purchase:
            return Purchase(event.payload["amount"], event.payload.get("category", "none"))

        @feature(entity=User, template="{spend_count_1h} for {spend_sum_1h:.2f}")
        def summary(user_id: str) -> str:
            return ""

        @feature(entity=User)
        async def doubled(user_id: str) -> float:
            return 2 * float(await store.get_feature("spend_sum_1h", user_id))

        self.spend = spend

    async def buy(
        self, amount: float, ago: timedelta = timedelta(0), user: str = "u1", **payload: Any
    ) -> None:
        moment = self.clock.now() - ago
        payload = {"amount": amount, **payload}
        await self.store.publish("purchase", user, payload, timestamp=moment)
        await self.store.drain()

    async def values(self, *names: str, user: str = "u1") -> list[Any]:
        (row,) = (await self.store.get_features(names, [user])).values()
        return [row[name] for name in names]

    async def value(self, name: str) -> FeatureValue:
        (row,) = await self.store.get_feature_values([name], ["u1"])
        return row[name]


@pytest.fixture
async def shop(settings: Settings, clock: ManualClock) -> AsyncIterator[Shop]:
    shop = Shop(settings, clock)
    async with shop.store:
        yield shop


async def test_values_fall_while_nothing_happens(shop: Shop) -> None:
    await shop.buy(10.5)
    shop.clock.advance(timedelta(minutes=30))
    await shop.buy(4.5)
    assert await shop.values("spend_count_1h", "spend_sum_1h", "spend_avg_1h") == [2, 15.0, 7.5]
    assert await shop.values("spend_last2_1h", "summary") == [[10.5, 4.5], "2 for 15.00"]
    assert await shop.spend["sum", "1h"].get("u1") == 15.0
    shop.clock.advance(timedelta(minutes=31, seconds=1))
    assert await shop.values("spend_count_1h", "spend_max_1h", "doubled") == [1, 4.5, 9.0]
    shop.clock.advance(timedelta(days=8))
    assert await shop.values("spend_count_7d", "spend_avg_7d", "spend_sum_30d") == [0, None, 15.0]


async def test_an_entity_without_events_has_counts_of_zero(shop: Shop) -> None:
    names = ("spend_count_1h", "spend_sum_7d", "spend_avg_30d", "by_category_sum_7d")
    assert await shop.values(*names) == [0, 0.0, None, {}]
    assert (await shop.value("spend_avg_1h")).source == "missing"


async def test_a_late_event_counts_in_the_window_of_its_time(shop: Shop) -> None:
    await shop.buy(1.0)
    await shop.buy(2.0, ago=2 * _HOUR)
    await shop.buy(4.0, ago=timedelta(days=10))
    await shop.buy(8.0, ago=timedelta(days=50))
    assert await shop.values("spend_sum_1h", "spend_sum_7d", "spend_sum_30d") == [1.0, 3.0, 7.0]
    assert await shop.values("spend_last2_30d") == [[2.0, 1.0]]


async def test_a_contribution_of_none_counts_nothing(shop: Shop) -> None:
    await shop.buy(0)
    names = ["spend_last2_1h", "spend_count_1h", "spend_avg_1h"]
    row = (await shop.store.get_features(names, ["u1"]))["u1"]
    assert list(row.items()) == [
        ("spend_last2_1h", []),
        ("spend_count_1h", 0),
        ("spend_avg_1h", None),
    ]
    assert (await shop.value("spend_last2_1h")).source == "default"


async def test_a_value_is_of_the_moment_of_its_read_and_says_when_it_was_folded(
    shop: Shop,
) -> None:
    await shop.buy(3.0)
    folded = shop.clock.now()
    shop.clock.advance(timedelta(minutes=5))
    value = await shop.value("spend_sum_1h")
    assert (value.value, value.as_of, value.source) == (3.0, shop.clock.now(), "online")
    assert value.written_at is not None
    assert folded - _HOUR < value.written_at <= shop.clock.now()


async def test_a_keyed_family_keeps_its_first_keys_apart_and_the_rest_as_other(
    shop: Shop,
) -> None:
    for category, amount in (("toys", 2.0), ("books", 3.0), ("games", 4.0), ("books", 5.0)):
        await shop.buy(amount, category=category)
    await shop.buy(0.5, category="books")
    assert await shop.values("by_category_sum_7d", "by_category_count_7d") == [
        {"books": 8.0, "games": 4.0, "other": 2.0},
        {"books": 2, "games": 1, "other": 1},
    ]


async def test_a_failed_event_is_a_dead_letter_of_the_family_and_counts_after_its_redrive(
    shop: Shop,
) -> None:
    shop.failing.add("bad")
    await shop.buy(7.0, note="bad")
    assert await shop.values("spend_sum_1h", "by_category_count_7d") == [0.0, {"none": 1}]
    (letter,) = await shop.store.dead_letters.list()
    assert letter.feature == "spend"
    shop.failing.clear()
    await shop.store.dead_letters.redrive(letter.id)
    await shop.store.drain()
    assert await shop.values("spend_sum_1h", "by_category_count_7d") == [7.0, {"none": 1}]


async def test_the_family_itself_has_no_value(shop: Shop) -> None:
    with pytest.raises(InvalidInputError, match=r"family of windows.*spend_count_1h"):
        await shop.store.get_feature("spend", "u1")


async def test_other_windows_are_made_again_from_the_contributions(
    settings: Settings, clock: ManualClock
) -> None:
    first = Shop(settings, clock)
    async with first.store:
        await first.buy(1.0, ago=2 * _HOUR)
        await first.buy(2.0)
    second = Shop(settings, clock, ["1h", "3h", "90d"])
    async with second.store:
        assert await second.values("spend_sum_3h", "spend_count_90d") == [3.0, 2]
        await second.buy(4.0)
        assert await second.values("spend_sum_3h", "spend_last2_90d") == [7.0, [2.0, 4.0]]


async def test_a_reader_whose_clock_is_behind_gets_the_tiles_of_its_time(
    settings: Settings, clock: ManualClock
) -> None:
    began = clock.now()
    shop = Shop(settings, clock)
    async with shop.store:
        await shop.buy(1.0)
        clock.advance(3 * _HOUR)
        await shop.buy(2.0)
        clock.advance(3 * _HOUR)
        await shop.buy(4.0)
        assert await shop.values("spend_sum_1h") == [4.0]
    behind = Shop(settings, ManualClock(began + timedelta(minutes=1)))
    async with behind.store:
        # Also the later events, whatever their time: a reader is served all that is known.
        assert await behind.values("spend_sum_1h", "spend_sum_7d") == [7.0, 7.0]


async def test_a_worker_makes_the_states_of_an_earlier_plan_again(
    settings: Settings, clock: ManualClock
) -> None:
    first = Shop(settings, clock)
    async with first.store:
        for user in ("u1", "u2", "u3"):
            await first.buy(1.0, user=user)
    second = Shop(settings, clock, ["1h", "90d"])
    family = second.spend.definition
    async with second.store as store:
        worker = Worker(store)
        running = asyncio.create_task(worker.run())
        try:
            await until(lambda: _are_of_plan(store, family))
        finally:
            worker.stop()
            await running
        assert await second.values("spend_sum_90d", user="u3") == [1.0]


async def _are_of_plan(store: FeatureStore, family: FeatureDef) -> bool:
    assert family.windows is not None
    digest = family.windows.plan.digest.encode()
    engine = await runtime_of(store).open()
    states = await engine.backends.online.get("User", ["u1", "u2", "u3"])
    return all(digest in bytes(cells["spend"].value) for cells in states)


async def test_a_handler_reads_the_windows_of_its_own_batch(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="login", window="1h", aggregate="count")
    def logins(user_id: str, event: ServiceEvent) -> bool:
        return True

    @feature(entity=User, trigger="login")
    async def seen(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("logins_count_1h", user_id))

    @feature(entity=User, trigger="login")
    def seen_in_thread(user_id: str, event: ServiceEvent) -> int:
        return int(store.sync.get_feature("logins_count_1h", user_id))

    async with store:
        events = [ServiceEvent("login", "u1", {}, clock.now()) for _ in range(3)]
        await store.bus.publish_many(events)
        await store.drain()
        row = (await store.get_features(["logins_count_1h", "seen", "seen_in_thread"], ["u1"]))[
            "u1"
        ]
    assert row == {"logins_count_1h": 3, "seen": 3, "seen_in_thread": 3}


async def test_a_handler_reads_its_own_batch_after_a_clock_that_was_ahead(
    settings: Settings, clock: ManualClock
) -> None:
    def declared(clock: ManualClock) -> FeatureStore:
        store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="login", window="1h", aggregate="count")
        def logins(user_id: str, event: ServiceEvent) -> bool:
            return True

        @feature(entity=User, trigger="look")
        async def seen(user_id: str, event: ServiceEvent) -> int:
            return int(await store.get_feature("logins_count_1h", user_id))

        return store

    ahead = ManualClock(clock.now() + timedelta(days=1))
    async with declared(ahead) as store:
        await store.publish("login", "u1")
        await store.drain()
    async with declared(clock) as store:
        events = [ServiceEvent(kind, "u1", {}, clock.now()) for kind in ("login", "login", "look")]
        await store.bus.publish_many(events)
        await store.drain()
        row = (await store.get_features(["logins_count_1h", "seen"], ["u1"]))["u1"]
    # Online, an event counts whatever its time.
    assert row == {"logins_count_1h": 3, "seen": 3}


async def test_moments_are_the_same_in_whatever_zone_and_after_a_rebuild(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    zones = (UTC, timezone(3 * _HOUR))

    @feature(entity=user, trigger="due", window="1h", aggregate=["distinct", "last", "last(4)"])
    def due(user_id: str, event: ServiceEvent) -> datetime:
        return noon.astimezone(zones[event.payload["zone"]])

    names = ["due_distinct_1h", "due_last_1h", "due_last4_1h"]
    for count in (2, 4):
        for zone in range(2):
            await store.publish("due", "u1", {"zone": zone})
        await store.drain()
        clock.advance("1s")
        assert not (await store.admin.audit()).differences
        await store.admin.rebuild()
        row = (await store.get_features(names, ["u1"]))["u1"]
        assert repr([row[name] for name in names]) == repr([1, noon, [noon] * count])
        (past,) = await store.get_historical_features(
            [{"user_id": "u1", "timestamp": clock.now()}], names
        )
        assert [past[name] for name in names] == [row[name] for name in names]


async def test_a_clock_that_is_set_back_within_a_batch_costs_no_contribution(
    settings: Settings,
) -> None:
    clock = _SetBack()
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", window=["10s", "1d"], aggregate=["count"])
    def visits(user_id: str, event: ServiceEvent) -> int:
        clock.ahead = event.payload["ahead"]
        return 1

    async with store:
        await store.bus.publish_many(
            [ServiceEvent("visit", "u1", {"ahead": ahead}) for ahead in (0, -1, -1, 1, 0)]
        )
        await store.drain()
        clock.ahead = 0
        assert await store.get_feature("visits_count_1d", "u1") == 5
        assert (await store.admin.audit()).differences == []


class _SetBack(SystemClock):
    """A clock that is some hours ahead."""

    ahead = 0

    def now(self) -> datetime:
        return super().now() + self.ahead * _HOUR

    def micros(self) -> int:
        return super().micros() + self.ahead * _HOUR // timedelta(microseconds=1)
