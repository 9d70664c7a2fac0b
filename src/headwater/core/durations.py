"""Parse and format durations such as ``30s`` and ``1h 30m``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal

from headwater.errors import DurationError

Duration = timedelta | str

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGE_UNITS = {**_UNITS, "w": 7 * _UNITS["d"], "y": 365 * _UNITS["d"]}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]{1,2})", re.ASCII)
_LONGEST_MS = timedelta.max // timedelta(milliseconds=1)
# A moment so long ago is still in the calendar.
_LONGEST_AGE = timedelta(days=365 * 1_000)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as ``500ms``, ``1.5h`` or ``1d``; at least one.

    >>> parse_duration("1.5h")
    5400000
    """
    return _parse(text, _UNITS)


def _parse(text: str, units: Mapping[str, int]) -> int:
    match = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or match[2] not in units:
        raise DurationError(text, units)
    milliseconds = (Decimal(match[1]) * units[match[2]]).to_integral_value()
    if not 0 < milliseconds <= _LONGEST_MS:
        raise DurationError(text, units)
    return int(milliseconds)


def format_duration(milliseconds: int) -> str:
    """Format milliseconds for people: ``1h 30m``, ``2.5s``, ``40ms``.

    >>> format_duration(5_400_000)
    '1h 30m'
    """
    if milliseconds < 0:
        return "-" + format_duration(-milliseconds)
    if milliseconds < 1_000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:g}s"
    parts = []
    rest = milliseconds // 1_000 * 1_000
    for unit in ("d", "h", "m", "s"):
        count, rest = divmod(rest, _UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def to_timedelta(duration: Duration) -> timedelta:
    """Return the timedelta of a duration; raise DurationError unless it is positive."""
    return _to_timedelta(duration, _UNITS)


def to_age(duration: Duration) -> timedelta:
    """Return how long something is kept: a duration, or weeks, or years of 365 days.

    >>> to_age("2y").days
    730
    """
    age = _to_timedelta(duration, _AGE_UNITS)
    if age > _LONGEST_AGE:
        raise DurationError(duration, _AGE_UNITS)
    return age


def _to_timedelta(duration: Duration, units: Mapping[str, int]) -> timedelta:
    span = duration
    if not isinstance(span, timedelta):
        span = timedelta(milliseconds=_parse(span, units))
    if span <= timedelta(0):
        raise DurationError(duration, units)
    return span
