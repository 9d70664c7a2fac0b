"""When something is due that runs on a schedule: at an interval, or by a cron expression. Pure."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime, timedelta, tzinfo
from importlib import import_module
from typing import Protocol, cast

import msgspec

from headwater.core.clock import EPOCH
from headwater.core.durations import Duration, format_duration, to_timedelta
from headwater.errors import InvalidInputError
from headwater.errors.hints import quoted

CRON = "cron:"
CRON_EXAMPLE = "'cron: 0 6 * * mon-fri Europe/Berlin'"
CRON_FIELDS = 5
_MILLISECOND = timedelta(milliseconds=1)
# Each run is an event in every partition.
_SHORTEST_INTERVAL = timedelta(milliseconds=100)
# The next run is in the calendar.
_LONGEST_INTERVAL = timedelta(days=365 * 1_000)
_SPREAD = 0.1
_MAX_SPREAD = timedelta(seconds=30)


class Schedule(Protocol):
    """When something is due; ``name`` is that of what runs."""

    @property
    def zone(self) -> tzinfo:
        """The time zone that its runs are shown in."""

    @property
    def text(self) -> str:
        """The schedule as it is declared."""

    @property
    def words(self) -> str:
        """The schedule in words."""

    def last_due(self, name: str, now: datetime) -> datetime:
        """Return the latest due time that is not after now; in all processes it is the same."""

    def next_due(self, name: str, now: datetime) -> datetime:
        """Return the first due time after now."""

    def missed(self, name: str, last: datetime, due: datetime) -> int:
        """Return how many due times there are between two others; some thousand are enough."""


class Interval(msgspec.Struct, frozen=True):
    """A schedule that is due every so often.

    Due times are multiples of the interval, so that all workers compute the same ones. An offset
    that depends on the name of what runs spreads those with one interval.
    """

    every: timedelta

    @property
    def zone(self) -> tzinfo:
        return UTC

    @property
    def text(self) -> str:
        return format_duration(self.every // _MILLISECOND)

    @property
    def words(self) -> str:
        return f"every {self.text}"

    def last_due(self, name: str, now: datetime) -> datetime:
        spread = min(self.every * _SPREAD, _MAX_SPREAD)
        offset = spread * (zlib.crc32(name.encode()) / 2**32)
        return now - (now - EPOCH - offset) % self.every

    def next_due(self, name: str, now: datetime) -> datetime:
        return self.last_due(name, now) + self.every

    def missed(self, name: str, last: datetime, due: datetime) -> int:
        # A run that was requested in between is less than an interval away.
        return max(0, (due - last) // self.every - 1)


def upcoming(schedule: Schedule, name: str, now: datetime, count: int) -> list[datetime]:
    """Return the next due times, in the time zone of the schedule."""
    runs: list[datetime] = []
    for _ in range(count):
        now = schedule.next_due(name, now)
        runs.append(now.astimezone(schedule.zone))
    return runs


def parse_schedule(schedule: Duration) -> Schedule:
    """Return a schedule such as ``5m`` or ``cron: 0 6 * * mon-fri Europe/Berlin``.

    A cron expression has five fields: minute, hour, day of month, month and day of week. The time
    zone is UTC if it has none.

    >>> parse_schedule("cron: 0 6 * * mon-fri Europe/Berlin").words
    'at 06:00 on Monday through Friday, Europe/Berlin'

    Raises:
        InvalidInputError: It is neither, or a schedule that is never due.
    """
    if isinstance(schedule, str) and schedule.strip().startswith(CRON):
        # The library and the time zones are loaded by the first expression.
        cron = import_module("headwater.core.cron")
        return cast(Schedule, cron.parse_cron(schedule.strip().removeprefix(CRON).split()))
    if isinstance(schedule, str) and len(schedule.split()) >= CRON_FIELDS:
        raise InvalidInputError(f"{quoted(schedule)} is not a schedule; write {CRON_EXAMPLE}")
    interval = to_timedelta(schedule)
    if not _SHORTEST_INTERVAL <= interval <= _LONGEST_INTERVAL:
        raise InvalidInputError(
            f"{schedule!r} is out of range; write 100ms to 365000d, or leave out refresh for a "
            "value that is computed when it is read"
        )
    return Interval(interval)
