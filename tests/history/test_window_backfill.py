"""Backfills of windows: a new version of the contributions, from which states are made."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, Worker, entity, feature
from headwater.engine.backfill.run import BackfillRun
from headwater.errors import BackfillRefusedError, HeadwaterError
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import until
from tests.features.window_shop import DAY, HOUR, NAMES, declare, expected, served

pytestmark = pytest.mark.both_environments

Published = list[tuple[datetime, float]]

# Late, tied, equal and old ones, in the order of their publication.
AGES = [20 * DAY, 6 * DAY, 50 * DAY, 3 * HOUR, 6 * DAY, HOUR / 2, 3 * HOUR, HOUR / 2, HOUR / 2]


@asynccontextmanager
async def shop(
    settings: Settings, clock: ManualClock, factor: float = 1.0, **options: Any
) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=settings, clock=clock)
    declare(store, factor=factor, **options)
    async with store:
        yield store


async def publish(
    store: FeatureStore, clock: ManualClock, ages: Sequence[timedelta] = AGES, users: int = 3
) -> Published:
    """Publish purchases of several users; return those of one."""
    published = []
    for number, age in enumerate(ages):
        at = clock.now() - age
        published.append((at, float(number // 2 + 1)))
        for user in range(users):
            payload = {"amount": number // 2 + 1}
            await store.publish("buy", f"u{user}", payload, timestamp=at)
        clock.advance(timedelta(milliseconds=1))
    return published


def times(factor: float, published: Published) -> Published:
    return [(at, factor * amount) for at, amount in published]


async def test_a_backfill_gives_the_windows_that_the_new_function_had_given(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    async with shop(settings, clock, 10.0) as new:
        report = await new.backfills.run("spend")
        assert report.version == 2
        assert await served(new) == expected(published, clock.now())
        compared = await new.backfills.compare("spend")
        assert (compared.online.different, compared.online.equal) == (3, 0)
        assert compared.history.different == len({at for at, _ in published}) * 3
        await new.backfills.switch("spend")
        for user in range(3):
            found = await served(new, f"u{user}")
            assert found == expected(times(10.0, published), clock.now())
        more = await publish(new, clock, [HOUR / 4, 8 * DAY])
        await new.drain()
        both = times(10.0, published + more)
        assert await served(new) == expected(both, clock.now())
        assert not (await new.admin.audit()).differences
        clock.advance(DAY)
        assert await served(new) == expected(both, clock.now())


async def test_a_comparison_of_the_same_function_finds_no_difference(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        await publish(store, clock)
        await store.drain()
        await store.backfills.run("spend")
        compared = await store.backfills.compare("spend")
        assert (compared.online.different, compared.online.equal) == (0, 3)
        assert (compared.history.different, compared.history.only_old) == (0, 0)


async def test_events_that_arrive_during_a_backfill_count_once(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    async with shop(settings, clock, 10.0) as new:
        worker = Worker(new)
        running = asyncio.create_task(worker.run())
        try:
            await until(lambda: worker.health().ok)
            arriving = asyncio.create_task(publish(new, clock, AGES * 8))
            await new.backfills.run("spend")
            published += await arriving
            published += await publish(new, clock, AGES[:4])
            await new.backfills.switch("spend")
        finally:
            worker.stop()
            await running
        await new.drain()
        for user in range(3):
            found = await served(new, f"u{user}")
            assert found == expected(times(10.0, published), clock.now())
        assert not (await new.admin.audit()).differences


@pytest.mark.parametrize("place", ["_add_history", "_serve_last", "_catch_up"])
async def test_a_backfill_that_died_is_resumed(
    settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    step = getattr(BackfillRun, place)

    async def die(*given: Any) -> None:
        if place != "_catch_up":
            await step(*given)
        raise ConnectionError("died")

    async with shop(settings, clock, 10.0) as new:
        with monkeypatch.context() as patch:
            patch.setattr(BackfillRun, place, die)
            with pytest.raises(ConnectionError):
                await new.backfills.run("spend")
        published += await publish(new, clock, AGES[:3])
        await new.drain()
        await new.backfills.run("spend")
        await new.backfills.switch("spend")
        assert await served(new) == expected(times(10.0, published), clock.now())
        assert not (await new.admin.audit()).differences


async def test_a_backfill_since_a_time_keeps_the_contributions_of_before(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.publish("buy", "only_before", {"amount": 7}, timestamp=clock.now() - 9 * DAY)
        await old.drain()
        before = await served(old, "only_before")
    since = clock.now() - 4 * DAY
    async with shop(settings, clock, 10.0) as new:
        await new.backfills.run("spend", since=since)
        await new.backfills.switch("spend")
        mixed = [(at, amount if at < since else 10 * amount) for at, amount in published]
        assert await served(new) == expected(mixed, clock.now())
        assert await served(new, "only_before") == before
        assert not (await new.admin.audit()).differences


async def test_a_backfill_keeps_contributions_that_were_imported_without_events(
    settings: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    past = [clock.now() - 20 * DAY, clock.now() - 2 * DAY]
    file = tmp_path / "past.csv"
    rows = [f"u1,{at.isoformat()},7.0" for at in (*past, past[-1])]
    file.write_text("\n".join(["user_id,timestamp,spend", *rows]))
    async with shop(settings, clock) as old:
        assert (await old.history.import_file(file, ["spend"])).added == 3
        published = await publish(old, clock)
        await old.drain()
    async with shop(settings, clock, 10.0) as new:
        await new.backfills.run("spend")
        await new.backfills.switch("spend")
        imported = [(at, 7.0) for at in (*past, past[-1])]
        assert await served(new) == expected([*imported, *times(10.0, published)], clock.now())
        assert (await new.admin.audit()).differences == []


async def test_a_new_family_counts_the_events_of_before_it_was_declared(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    def last(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    async with store:
        published = await publish(store, clock)
        await store.drain()
    async with shop(settings, clock) as new:
        assert (await served(new))["spend_count_30d"] == 0
        await new.backfills.run("spend")
        await new.backfills.switch("spend")
        assert await served(new) == expected(published, clock.now())


async def test_contributions_of_before_the_first_one_are_added(
    settings: Settings, clock: ManualClock
) -> None:
    async with FeatureStore(settings=settings, clock=clock) as before:
        published = await publish(before, clock)
        await Worker(before).drain()
    async with shop(settings, clock) as store:
        at = clock.now()
        await store.publish("buy", "u0", {"amount": 100}, timestamp=at)
        await store.drain()
        for added in (len(AGES) * 3, 0):  # the second time there is nothing left to add
            report = await store.backfills.run("spend", until=clock.now())
            assert report.replayed is not None
            assert report.replayed.values == added
            assert await served(store) == expected(published, clock.now())
            assert await served(store, "u0") == expected([*published, (at, 100.0)], clock.now())
            assert not (await store.admin.audit()).differences


async def test_a_feature_of_a_family_names_the_family_to_backfill(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        with pytest.raises(BackfillRefusedError, match="run `headwater backfill spend`"):
            await store.backfills.run("spend_sum_1h")


async def test_a_handler_that_reads_windows_cannot_be_replayed(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)
    user = declare(store)

    @feature(entity=user, trigger="buy")
    async def ratio(user_id: str, event: ServiceEvent) -> float:
        return float(await store.get_feature("spend_sum_1h", user_id))

    async with store:
        await publish(store, clock, [HOUR / 2])
        await store.drain()
        with pytest.raises(HeadwaterError, match="reads windows of 'spend'"):
            await store.backfills.run("ratio")


async def test_what_was_served_before_a_switch_stays_known(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    clock.advance(timedelta(seconds=1))
    before = clock.now()
    async with shop(settings, clock, 10.0) as new:
        await new.backfills.run("spend")
        clock.advance(timedelta(seconds=1))
        await new.backfills.switch("spend")
        clock.advance(timedelta(seconds=1))
        frame = [{"user_id": "u1", "timestamp": at} for at in (before, clock.now())]
        known = await new.get_historical_features(frame, NAMES, known=True)
        true = await new.get_historical_features(frame, NAMES)
        past, now = [{name: row[name] for name in NAMES} for row in known]
        assert past == expected(published, before)
        assert now == expected(times(10.0, published), clock.now()) == await served(new)
        assert {name: true[0][name] for name in NAMES} == expected(times(10.0, published), before)


async def test_contributions_of_before_a_switch_can_be_switched_back_to(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    async with shop(settings, clock, 10.0) as new:
        await new.backfills.run("spend", switch=True)
        await new.backfills.switch("spend", version=1)
        assert await served(new) == expected(published, clock.now())
        counts = [(each.online, each.history) for each in await new.catalog.versions("spend")]
        assert counts == [(3, 3 * len(AGES))] * 2
        await new.catalog.drop("spend", version=2)
        assert await served(new) == expected(published, clock.now())
        assert not (await new.admin.audit()).differences


async def test_a_cancelled_backfill_leaves_the_windows_that_are_served(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as old:
        published = await publish(old, clock)
        await old.drain()
    async with shop(settings, clock, 10.0) as new:
        await new.backfills.run("spend")
        await new.backfills.cancel("spend")
        assert await served(new) == expected(published, clock.now())
        assert len(await new.catalog.versions("spend")) == 2
