"""Trying again: one loop, pauses that grow, and the pause that a server asks for."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import count
from typing import NamedTuple, TypeVar

from headwater.core.clock import Clock

T = TypeVar("T")

_MOST_DOUBLINGS = 64


class Pause(NamedTuple):
    """The outcome of an attempt that is made again after some seconds."""

    seconds: float


async def retried(attempt: Callable[[int], Awaitable[T | Pause]], clock: Clock) -> T:
    """Return the result of the first attempt that has one; each gets its number, from 0 on.

    An attempt that fails for good raises its error.
    """
    for number in count():
        outcome = await attempt(number)
        if not isinstance(outcome, Pause):
            return outcome
        await clock.sleep(outcome.seconds)
    raise AssertionError("the loop has no end")


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return a random pause that doubles with each attempt, up to the longest.

    It is random so that clients that failed together do not return together.
    """
    most: float = min(first * 2 ** min(attempt, _MOST_DOUBLINGS), longest)
    return random.uniform(most / 2, most)


def retry_after_seconds(text: str, now: datetime) -> float | None:
    """Return the seconds of the header Retry-After: a number, or until a date; None if neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(text) - now) / timedelta(seconds=1)
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
