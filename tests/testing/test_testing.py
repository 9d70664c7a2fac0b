"""The public tools of ``headwater.testing``."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.core.clock import SystemClock, to_micros
from headwater.declarations.runtime import runtime_of
from headwater.errors import DurationError, InvalidInputError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock, temporary

pytestmark = pytest.mark.both_environments


def is_gone(folder: str) -> bool:
    return not Path(folder).exists()


def test_a_manual_clock_moves_only_when_advanced() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    clock = ManualClock(start)
    assert clock.now() == clock.now() == start
    clock.advance("1.5h")
    clock.advance(timedelta(seconds=1))
    assert clock.now() == start + timedelta(minutes=90, seconds=1)
    assert clock.micros() == to_micros(clock.now())


def test_a_manual_clock_starts_now_by_default() -> None:
    assert abs(ManualClock().now() - datetime.now(UTC)) < timedelta(minutes=1)


async def test_a_sleep_by_a_manual_clock_takes_no_time_but_moves_it() -> None:
    clock, began = ManualClock(), time.monotonic()
    before = clock.now()
    await clock.sleep(3_600)
    assert clock.now() - before == timedelta(hours=1)
    assert time.monotonic() - began < 60


def test_a_manual_clock_cannot_be_moved_back_and_needs_a_time_zone() -> None:
    with pytest.raises(DurationError):
        ManualClock().advance(timedelta(seconds=-1))
    with pytest.raises(InvalidInputError, match="time zone"):
        ManualClock(datetime(2026, 1, 1))  # noqa: DTZ001 - the invalid argument


async def test_a_temporary_store_is_empty_and_leaves_nothing_behind(
    store: FeatureStore, user: type, settings: Settings
) -> None:
    @feature(entity=user, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    await store.publish("buy", "u1", {"amount": 1})
    await store.drain()
    async with temporary(store) as same:
        assert same is store
        home = store.settings.home
        assert await store.get_feature("total", "u1") is None
        await store.publish("buy", "u1", {"amount": 2})
        await store.drain()
        assert await store.get_feature("total", "u1") == 2
    assert is_gone(home)
    assert store.settings == settings
    assert await store.get_feature("total", "u1") == 1


async def test_a_temporary_store_has_its_own_clock(store: FeatureStore) -> None:
    before, clock = store.clock.now(), ManualClock(datetime(2020, 1, 1, tzinfo=UTC))
    async with temporary(store, clock):
        clock.advance("1h")
        assert store.clock.now() == clock.now() == datetime(2020, 1, 1, 1, tzinfo=UTC)
    assert store.clock.now() >= before


async def test_a_temporary_store_is_always_embedded() -> None:
    store = FeatureStore(
        settings=Settings().replace(env="production", redis={"url": "redis://nowhere"})
    )
    async with temporary(store):
        await store.publish("buy", "u1")
    assert store.settings.env == "production"
    assert isinstance(runtime_of(store).clock, SystemClock)


async def test_a_temporary_store_is_restored_when_the_test_fails(store: FeatureStore) -> None:
    homes: list[str] = []

    async def fail() -> None:
        async with temporary(store):
            homes.append(store.settings.home)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert is_gone(homes[0])
