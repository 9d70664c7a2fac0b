"""The samples of the last hour: of the whole store, shared by its processes, with gaps."""

from datetime import UTC, datetime, timedelta

import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.doctor.overview import series_of
from headwater.engine import last_hour
from headwater.engine.last_hour import SAMPLES, STEP, LastHour
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

A_STEP = timedelta(seconds=STEP)


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that shows a time at which the sample before it is due."""
    now = datetime.now(UTC)
    return ManualClock(now - timedelta(seconds=now.timestamp() % STEP - 2))


def shop(settings: Settings, clock: ManualClock) -> FeatureStore:
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", max_retries=0)
    def total_spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @context(store, freshness_sla="1m")
    async def support(user_id: str) -> list[str]:
        return [f"spent {await store.get_feature('total_spend', user_id)}"]

    return store


@pytest.mark.both_environments
async def test_the_series_describes_the_whole_store(settings: Settings, clock: ManualClock) -> None:
    async with shop(settings, clock) as store, shop(settings, clock) as other:
        served, also_served = LastHour(store), LastHour(other)
        await served.update()
        for amount in (1, 2, 3, "none"):
            await other.publish("purchase", "ada", {"amount": amount})
        clock.advance(A_STEP)
        await served.update()
        await other.drain()
        await assemble(other, "ada", "bob")
        clock.advance(A_STEP)
        await also_served.update()
        await served.update()
        series = series_of(*served.samples())
        assert series == series_of(*also_served.samples())
        assert series.waiting[-3:] == [0, 4, 0]
        assert series.dead_letters[-3:] == [0, 0, 1]
        assert series.accepted_per_second[-3:] == [None, 4 / STEP, 0]
        assert series.processed_per_second[-3:] == [None, 0, 4 / STEP]
        assert series.contexts_per_minute[-1] == 2
        assert series.fresh_percent[-1] == 50
        assert series.assembly_p99_ms[-1] is not None
        assert len(series.waiting) == SAMPLES


async def assemble(store: FeatureStore, *users: str) -> None:
    for user in users:
        await store.assemble("support", {"user_id": user})


@pytest.mark.both_environments
async def test_a_restarted_server_still_has_the_last_hour(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        before = LastHour(store)
        await store.publish("purchase", "ada", {"amount": 1})
        await before.update()
        clock.advance(3 * A_STEP)
        await before.update()
    async with shop(settings, clock) as store:
        after = LastHour(store)
        clock.advance(A_STEP)
        await after.update()
        assert series_of(*after.samples()).waiting[-6:] == [None, 1, None, None, 1, 1]


async def test_contexts_from_before_the_first_server_are_counted(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        await assemble(store, "ada", "bob")
        clock.advance("10m")
        hour = LastHour(store)
        await hour.update()
        series = series_of(*hour.samples())
        assert max(filter(None, series.contexts_per_minute)) == 2
        assert series.waiting[:-1] == [None] * (SAMPLES - 1)


@pytest.mark.both_environments
async def test_contexts_stored_late_and_between_two_samples_are_counted(
    settings: Settings, clock: ManualClock
) -> None:
    slow = ManualClock(clock.now())
    async with shop(settings, clock) as store, shop(settings, slow) as busy:
        hour, other = LastHour(store), LastHour(store)
        await hour.update()
        clock.advance(A_STEP)
        await hour.update()
        await other.update()
        # Stored after the sample of its time was taken.
        await assemble(busy, "ada")
        # The samples of two times were left out.
        clock.advance(A_STEP)
        await assemble(store, "ada", "bob")
        clock.advance(2 * A_STEP)
        await hour.update()
        await other.update()
        for each in (hour, other):
            assert series_of(*each.samples()).contexts_per_minute[-4:] == [1, 1, 3, 3]


async def test_the_newest_time_is_counted_although_it_has_too_many_contexts(
    settings: Settings, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_hour, "_PAGE", 2)
    monkeypatch.setattr(last_hour, "_MOST_RECORDS", 4)
    async with shop(settings, clock) as store:
        await assemble(store, *("ada", "bob", "eve") * 2)
        clock.advance(A_STEP)
        hour = LastHour(store)
        await hour.update()
        assert series_of(*hour.samples()).contexts_per_minute[-1] == 4


async def test_a_time_without_a_server_is_a_gap_and_samples_are_dropped_after_an_hour(
    settings: Settings, clock: ManualClock
) -> None:
    async with shop(settings, clock) as store:
        hour = LastHour(store)
        await hour.update()
        clock.advance(SAMPLES * A_STEP)
        assert hour.samples().samples == [None] * SAMPLES
        await hour.update()
        known = [each for each in hour.samples().samples if each and each.backlog]
        assert len(known) == 1
