"""Schedules by a cron expression. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import msgspec
from cronsim import CronSim, CronSimError

from headwater.core.clock import EPOCH
from headwater.core.schedules import CRON, CRON_EXAMPLE, CRON_FIELDS
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest, quoted

_MINUTE = timedelta(minutes=1)
# Counting takes some 20 µs for each.
_MOST_MISSED = 1_000
_MOST_REMEMBERED = 4_096
_POSSIBLE = {
    "Bad minute": "the minute must be 0 to 59",
    "Bad hour": "the hour must be 0 to 23",
    "Bad day-of-month": (
        "the day of the month must be 1 to 31 (one that the month has), L for the last day, or LW "
        "for the last weekday"
    ),
    "Bad month": "the month must be 1 to 12, or jan to dec",
    "Bad day-of-week": (
        "the day of the week must be 0 (Sunday) to 7, or sun to sat; mon#1 is the first Monday of "
        "the month, 5L the last Friday"
    ),
}
"""What a field may be, by the error of the library about it."""


class Cron(msgspec.Struct, frozen=True):
    """A schedule that is due at the minutes that a cron expression names, in a time zone.

    When clocks are set forward, a run at a fixed time that is skipped is due at the first minute
    after it; when they are set back, it is due once, at the first of both. A schedule whose minute
    or hour begins with ``*`` follows the clock on the wall: it is not due in the skipped hour, and
    is in both repeated ones.
    """

    expression: str
    zone_name: str = ""

    @property
    def zone(self) -> tzinfo:
        return ZoneInfo(self.zone_name) if self.zone_name else UTC

    @property
    def text(self) -> str:
        return f"{CRON} {self.expression} {self.zone_name}".rstrip()

    @property
    def words(self) -> str:
        explained = CronSim(self.expression, EPOCH).explain()
        return f"{explained[0].lower()}{explained[1:]}, {self.zone_name or 'UTC'}"

    def last_due(self, name: str, now: datetime) -> datetime:
        return _last_run(self, now.replace(second=0, microsecond=0))

    def next_due(self, name: str, now: datetime) -> datetime:
        return _next_run(self, now.replace(second=0, microsecond=0))

    def missed(self, name: str, last: datetime, due: datetime) -> int:
        between = takewhile(lambda run: run < due, _runs(self, last))
        return sum(1 for _ in islice((run for run in between if run > last), _MOST_MISSED))


def parse_cron(parts: Sequence[str]) -> Cron:
    """Return the schedule of five fields and a time zone, or none."""
    fields, zones = parts[:CRON_FIELDS], parts[CRON_FIELDS:]
    text = quoted(" ".join(parts))
    if len(fields) < CRON_FIELDS or len(zones) > 1 or (zones and _is_field(zones[0])):
        raise InvalidInputError(
            f"the cron expression {text} must have five fields (minute, hour, day of month, month, "
            f"day of week) and then a time zone or none; write {CRON_EXAMPLE}, or for less than a "
            "minute an interval such as '30s'"
        )
    cron = Cron(" ".join(fields), *zones)
    try:
        next(CronSim(cron.expression, EPOCH.astimezone(cron.zone)))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        hint = nearest(cron.zone_name, available_timezones())
        raise InvalidInputError(
            f"there is no time zone {quoted(cron.zone_name)}; {hint}"
        ) from error
    except StopIteration as error:
        raise InvalidInputError(f"the cron expression {text} is never due") from error
    except CronSimError as error:
        raise InvalidInputError(
            f"the cron expression {text} is not possible: {_POSSIBLE[str(error)]}; a list is "
            "1,15, a range goes up as in 1-5, a step is */5"
        ) from error
    return cron


def _is_field(text: str) -> bool:
    """Return whether a text can be the last of six fields, of which the first are the seconds."""
    try:
        CronSim(f"* * * * {text}", EPOCH)
    except CronSimError:
        return False
    return True


@lru_cache(_MOST_REMEMBERED)
def _next_run(cron: Cron, minute: datetime) -> datetime:
    return next(run for run in _runs(cron, minute) if run > minute)


@lru_cache(_MOST_REMEMBERED)
def _last_run(cron: Cron, minute: datetime) -> datetime:
    backwards = _runs(cron, minute + _MINUTE, backwards=True)
    last = next(run for run in backwards if run <= minute)
    # In the second of two equal hours, runs of the first one are later by the clock on the wall.
    while (following := _next_run(cron, last)) <= minute:
        last = following
    return last


def _runs(cron: Cron, start: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """Yield due times in their order by the clock on the wall, which repeats an hour a year."""
    for run in CronSim(cron.expression, start.astimezone(cron.zone), reverse=backwards):
        yield run.astimezone(UTC)
