"""Parse and format durations such as ``30s`` and ``1h 30m``."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from headwater.errors import DurationError

Duration = timedelta | str

_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PATTERN = re.compile(r"(\d+(?:\.\d+)?) ?(ms|s|m|h|d)", re.ASCII)
_LONGEST_MS = timedelta.max // timedelta(milliseconds=1)


def parse_duration(text: str) -> int:
    """Return the milliseconds of a duration such as ``500ms``, ``1.5h`` or ``1d``.

    >>> parse_duration("1.5h")
    5400000
    """
    match = _PATTERN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise DurationError(text)
    exact = Decimal(match[1]) * _UNITS[match[2]]
    if exact > _LONGEST_MS:
        raise DurationError(text)
    return int(exact.to_integral_value())


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
    if isinstance(duration, timedelta):
        span = duration
    else:
        span = timedelta(milliseconds=parse_duration(duration))
    if span <= timedelta(0):
        raise DurationError(duration)
    return span
