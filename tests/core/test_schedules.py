"""Schedules: intervals, cron expressions, time zones and daylight saving."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headwater.core.cron import Cron
from headwater.core.schedules import Schedule, parse_schedule, upcoming
from headwater.errors import InvalidInputError

# New York: 8 March and 1 November 2026; Berlin: 29 March and 25 October. Lord Howe moves by 30
# minutes, Beirut at midnight.
ZONES = ("", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut")
EXPRESSIONS = (
    "* * * * *",
    "*/15 * * * *",
    "0 * * * *",
    "*/20 1-3 * * *",
    "30 2 * * *",
    "59 2 * * *",
    "0,30 1-3 * * *",
    "15 0 * * *",
    "0 6 * * mon-fri",
    "0 3 L * *",
    "30 1 * * sun#1",
)
EVEN_HOURS = ["00:00+0200", "02:00+0200", "02:00+0100"] + [
    f"{hour:02}:00+0100" for hour in range(4, 24, 2)
]


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due_on(schedule: str, day: str) -> list[str]:
    """Return all due times of a day of its time zone, with their offsets."""
    cron = parse_schedule(schedule)
    start = datetime.fromisoformat(day).replace(tzinfo=cron.zone).astimezone(UTC)
    runs, now = [], start - timedelta(microseconds=1)
    while (now := cron.next_due("risk", now)).astimezone(cron.zone).isoformat().startswith(day):
        runs.append(now.astimezone(cron.zone).strftime("%H:%M%z"))
    return runs


def test_a_cron_expression_is_due_at_its_minutes_in_its_time_zone() -> None:
    cron = parse_schedule("cron: 0 6 * * mon-fri Europe/Berlin")
    friday = utc("2026-11-20T05:00")
    assert cron.last_due("risk", friday) == friday
    assert cron.last_due("risk", friday - timedelta(microseconds=1)) == utc("2026-11-19T05:00")
    assert cron.next_due("risk", friday) == utc("2026-11-23T05:00")
    assert cron.words == "at 06:00 on Monday through Friday, Europe/Berlin"
    assert cron.text == "cron: 0 6 * * mon-fri Europe/Berlin"


def test_without_a_zone_a_cron_expression_is_in_utc() -> None:
    cron = parse_schedule("cron: 0 6 1 jan-mar *")
    assert cron.next_due("risk", utc("2026-11-20T05:00")) == utc("2027-01-01T06:00")
    assert cron.words == "at 06:00 on the first day of every month from January through March, UTC"


def test_the_due_times_of_a_cron_expression_are_the_same_for_all_features() -> None:
    hourly, now = parse_schedule("cron: 0 * * * *"), utc("2026-11-20T05:10")
    assert {hourly.last_due(name, now) for name in "abcdefg"} == {utc("2026-11-20T05:00")}
    interval = parse_schedule("1h")
    assert len({interval.last_due(name, now) for name in "abcdefg"}) > 1


@pytest.mark.parametrize(
    ("schedule", "day", "runs"),
    [
        # Clocks go from 02:00 to 03:00.
        ("cron: 30 2 * * * Europe/Berlin", "2026-03-29", ["03:00+0200"]),
        ("cron: 0,30 2,3 * * * Europe/Berlin", "2026-03-29", ["03:00+0200", "03:30+0200"]),
        ("cron: */30 2 * * * Europe/Berlin", "2026-03-29", []),
        ("cron: 30 2 * * * America/New_York", "2026-03-08", ["03:00-0400"]),
        ("cron: 0 6 * * * America/New_York", "2026-03-08", ["06:00-0400"]),
        # Clocks go from 03:00 back to 02:00, in New York from 02:00 to 01:00.
        ("cron: 30 2 * * * Europe/Berlin", "2026-10-25", ["02:30+0200"]),
        ("cron: 0 2-3 * * * Europe/Berlin", "2026-10-25", ["02:00+0200", "03:00+0100"]),
        ("cron: 0 */2 * * * Europe/Berlin", "2026-10-25", EVEN_HOURS),
        ("cron: 30 1 * * * America/New_York", "2026-11-01", ["01:30-0400"]),
        ("cron: 0 6 * * * America/New_York", "2026-11-01", ["06:00-0500"]),
    ],
)  # fmt: skip
def test_a_run_in_the_skipped_hour_is_due_after_it_and_one_in_the_repeated_hour_once(
    schedule: str, day: str, runs: list[str]
) -> None:
    assert due_on(schedule, day) == runs


def test_in_the_second_of_two_equal_hours_a_run_of_the_first_was_due_already() -> None:
    cron = parse_schedule("cron: 30 2 * * * Europe/Berlin")
    for minutes in (0, 10, 30, 59):
        second = utc("2026-10-25T01:00") + timedelta(minutes=minutes)
        assert second.astimezone(ZoneInfo("Europe/Berlin")).fold == 1
        assert cron.last_due("risk", second) == utc("2026-10-25T00:30")
        assert cron.next_due("risk", second) == utc("2026-10-26T01:30")


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.timedeltas(timedelta(0), timedelta(days=365)).map(lambda span: utc("2026-01-01") + span),
)
@example("30 2 * * *", "Europe/Berlin", utc("2026-10-25T01:10"))
@example("30 2 * * *", "Europe/Berlin", utc("2026-03-29T01:00"))
@example("59 2 * * *", "Europe/Berlin", utc("2026-10-25T00:59"))
@example("15 0 * * *", "Asia/Beirut", utc("2026-03-28T22:00"))
@example("0,30 1-3 * * *", "Australia/Lord_Howe", utc("2026-04-04T15:10"))
def test_the_last_and_the_next_due_time_have_none_between_them(
    expression: str, zone: str, now: datetime
) -> None:
    cron = Cron(expression, zone)
    last, following = cron.last_due("risk", now), cron.next_due("risk", now)
    assert last <= now < following
    assert cron.next_due("risk", last) == following
    assert cron.last_due("risk", following) == following
    assert cron.last_due("risk", following - timedelta(microseconds=1)) == last


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("cron: 0 6 * *", "must have five fields"),
        ("cron: 0 0 6 * * mon-fri", "for less than a minute an interval such as '30s'"),
        ("cron: 0 0 6 * * 1 Europe/Berlin", "must have five fields"),
        ("cron: @daily", "must have five fields"),
        ("cron: 61 * * * *", "the minute must be 0 to 59"),
        ("cron: 0 24 * * *", "the hour must be 0 to 23"),
        ("cron: 0 0 32 * *", "the day of the month must be 1 to 31"),
        ("cron: 0 0 * 13 *", "the month must be 1 to 12, or jan to dec"),
        ("cron: 0 6 * * mon-fry", "the day of the week must be 0 (Sunday) to 7, or sun to sat"),
        ("cron: 0 6 * * fri-mon", "a range goes up"),
        ("cron: 0 0 31 2 *", "one that the month has"),
        ("cron: 0 0 30 feb *", "one that the month has"),
        ("cron: 0 6 * * 1 Europe/Berln", "did you mean 'Europe/Berlin'?"),
        ("cron: 0 6 * * 1 europe/berlin", "did you mean 'Europe/Berlin'?"),
        ("cron: 0 6 * * 1 ../../etc/passwd", "there is no time zone '../../etc/passwd'"),
        ("cron: 0 6 * * 1 Europe", "there is no time zone 'Europe'"),
        ("0 6 * * mon-fri", "write 'cron: 0 6 * * mon-fri Europe/Berlin'"),
        ("5 parsecs", "is not a duration"),
        ("1ms", "is out of range"),
    ],
)  # fmt: skip
def test_what_is_no_schedule_is_refused_with_a_remedy(schedule: str, problem: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parse_schedule(schedule)
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("schedule", "runs"),
    [
        ("cron: 0 0 L * *", ["2026-11-30", "2026-12-31", "2027-01-31"]),
        ("cron: 0 0 LW * *", ["2026-11-30", "2026-12-31", "2027-01-29"]),
        ("cron: 0 0 * * MON#1", ["2026-12-07", "2027-01-04", "2027-02-01"]),
        ("cron: 0 0 * * 5L", ["2026-11-27", "2026-12-25", "2027-01-29"]),
        ("cron: 0 0 1,15 * *", ["2026-12-01", "2026-12-15", "2027-01-01"]),
        ("cron: 0 0 29 2 *", ["2028-02-29", "2032-02-29", "2036-02-29"]),
        ("cron: 0 0 * 2 mon#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
    ],
)
def test_the_last_day_the_last_weekday_and_the_nth_day_of_a_week_can_be_named(
    schedule: str, runs: list[str]
) -> None:
    shown = upcoming(parse_schedule(schedule), "risk", utc("2026-11-17T22:00"), 3)
    assert [run.date().isoformat() for run in shown] == runs


@pytest.mark.parametrize(
    ("schedule", "missed"),
    [
        (parse_schedule("1h"), 47),
        (parse_schedule("cron: 0 * * * *"), 47),
        (parse_schedule("cron: 0 6 * * mon-fri"), 1),
        (parse_schedule("cron: * * * * *"), 1_000),
    ],
)
def test_due_times_between_two_runs_were_missed(schedule: Schedule, missed: int) -> None:
    last, due = utc("2026-11-18T06:00"), utc("2026-11-20T06:00")
    assert schedule.missed("risk", last, due) == missed
