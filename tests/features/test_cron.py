"""Features that run by a cron expression: ticks, daylight saving, freshness and listings."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from headwater import FeatureStore, context, entity, feature
from headwater.errors import DeclarationError
from headwater.settings.schema import Settings
from headwater.store.listings import declarations_of
from headwater.testing import ManualClock
from tests.doctor.test_overview import found, overview_of
from tests.engine.support import metric
from tests.features.known_users import declare_seen, know

pytestmark = pytest.mark.both_environments

MORNINGS = "cron: 0 6 * * mon-fri Europe/Berlin"
Runs = list[str]


@pytest.fixture
def clock() -> ManualClock:
    """Return a clock that shows the Wednesday before a weekend."""
    return ManualClock(datetime.fromisoformat("2026-11-18T12:00+01:00"))


def declare_noted(user: type, clock: ManualClock, refresh: str) -> Runs:
    """Declare a feature that runs on a schedule, and return the list of its runs."""
    runs: Runs = []

    @feature(entity=user, refresh=refresh, materialize=True, freshness="caught_up")
    def noted(user_id: str) -> int:
        runs.append(f"{clock.now():%d %b %H:%M}")
        return len(runs)

    return runs


async def wind(store: FeatureStore, clock: ManualClock, until: datetime, step: str = "30m") -> None:
    """Let time pass until a moment, and run what becomes due on the way."""
    while clock.now() < until:
        clock.advance(step)
        await store.drain()


async def test_a_cron_schedule_runs_on_its_days_at_its_minute_in_its_zone(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs = declare_noted(user, clock, MORNINGS)
    await know(store, "u1")
    await store.drain()
    await wind(store, clock, datetime.fromisoformat("2026-11-24T00:00+01:00"), "1h")
    assert runs == ["19 Nov 05:00", "20 Nov 05:00", "23 Nov 05:00"]


@pytest.mark.parametrize(
    ("zone", "night", "due"),
    [
        # At 02:00 it becomes 03:00: the run of 02:30 is due at once.
        ("Europe/Berlin", "2026-03-28T22:00Z", ["29 Mar 01:00", "30 Mar 00:30"]),
        ("America/New_York", "2026-03-08T04:00Z", ["08 Mar 07:00", "09 Mar 06:30"]),
        # At 03:00 it becomes 02:00: the run of 02:30 is due at the first of both. In New York
        # 01:00 to 02:00 is repeated, and 02:30 comes after it.
        ("Europe/Berlin", "2026-10-24T22:00Z", ["25 Oct 00:30", "26 Oct 01:30"]),
        ("America/New_York", "2026-11-01T04:00Z", ["01 Nov 07:30", "02 Nov 07:30"]),
    ],
)
async def test_daylight_saving_neither_loses_nor_repeats_a_run(
    settings: Settings, zone: str, night: str, due: list[str]
) -> None:
    start = datetime.fromisoformat(night)
    clock = ManualClock(start)
    store = FeatureStore(settings=settings, clock=clock)

    @entity(store)
    class User:
        user_id: str

    declare_seen(User)
    runs = declare_noted(User, clock, f"cron: 30 2 * * * {zone}")
    await know(store, "u1")
    await store.drain()
    await wind(store, clock, start + timedelta(hours=29))
    assert runs == due
    await store.close()


async def test_a_run_in_the_repeated_hour_is_published_once_by_several_workers(
    settings: Settings,
) -> None:
    clock = ManualClock(datetime.fromisoformat("2026-10-31T04:00Z"))
    stores, runs = [], []
    for _ in range(2):
        store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        declare_seen(User)

        @feature(entity=User, refresh="cron: 30 1 * * * America/New_York", materialize=True)
        def noted(user_id: str) -> int:
            runs.append(f"{clock.now():%d %b %H:%M}")
            return len(runs)

        stores.append(store)
    await know(stores[0], "u1")
    await stores[0].drain()
    runs.clear()
    while clock.now() < datetime.fromisoformat("2026-11-01T10:00Z"):
        clock.advance("30m")
        for store in stores:
            await store.drain()
    assert runs == ["31 Oct 05:30", "01 Nov 05:30"]
    await asyncio.gather(*(store.close() for store in stores))


async def test_of_missed_runs_only_the_last_is_caught_up_and_the_others_are_counted(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    runs = declare_noted(user, clock, MORNINGS)
    await know(store, "u1")
    await store.drain()
    missed = metric("headwater_ticks_missed_total", feature="noted")
    clock.advance("7d")
    await store.drain()
    assert runs == ["25 Nov 11:00"]
    # Of Thursday, Friday, Monday, Tuesday and Wednesday, the last one ran.
    assert metric("headwater_ticks_missed_total", feature="noted") == missed + 4


async def test_a_changed_schedule_runs_when_it_was_due_since_the_last_run(
    settings: Settings, clock: ManualClock
) -> None:
    declared: list[Runs] = []
    for refresh in (MORNINGS, "cron: 0 5 * * * Europe/Berlin", "cron: 0 11 * * * Europe/Berlin"):
        store = FeatureStore(settings=settings, clock=clock)

        @entity(store)
        class User:
            user_id: str

        declare_seen(User)
        declared.append(declare_noted(User, clock, refresh))
        await know(store, "u1")
        await store.drain()
        await store.close()
    # The user is known since the first run.
    assert declared == [[], [], ["18 Nov 11:00"]]


async def test_on_a_weekend_a_value_is_as_old_as_its_last_run_and_no_run_is_late(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_seen(user)
    declare_noted(user, clock, MORNINGS)

    @context(store, freshness_sla="3d")
    async def profile(user_id: str) -> str:
        return str(await store.get_feature("noted", user_id))

    await know(store, "u1")
    await store.drain()
    await wind(store, clock, datetime.fromisoformat("2026-11-20T06:00+01:00"), "1h")

    async def judged() -> tuple[str, str]:
        late = found(await overview_of(store)).get("schedules", "")
        return (await profile("u1")).freshness_status, late

    clock.advance(timedelta(days=2, hours=12))
    assert await judged() == ("guaranteed", "")
    clock.advance("15h")
    # On Monday at 09:00 a run of 06:00 that did not happen is one missed run.
    assert await judged() == ("degraded", "")
    clock.advance("1d")
    assert await judged() == ("degraded", "noted has not been refreshed for 4d 3h")
    await store.drain()
    assert await judged() == ("guaranteed", "")


async def test_a_listing_has_the_schedule_in_words_and_the_next_three_runs_in_its_zone(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    declare_noted(user, clock, MORNINGS)
    (listed,) = declarations_of(store).features
    assert listed.refresh == MORNINGS
    assert listed.schedule == "at 06:00 on Monday through Friday, Europe/Berlin"
    assert [run.isoformat() for run in listed.next_runs] == [
        "2026-11-19T06:00:00+01:00",
        "2026-11-20T06:00:00+01:00",
        "2026-11-23T06:00:00+01:00",
    ]


def test_a_schedule_that_is_never_due_is_refused_where_it_is_declared(user: type) -> None:
    with pytest.raises(DeclarationError, match=r"feature 'noted': refresh: .*0 0 31 2 \*"):
        declare_noted(user, ManualClock(), "cron: 0 0 31 2 *")
