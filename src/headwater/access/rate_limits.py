"""Rate limits: token buckets, and a bounded table of them."""

from __future__ import annotations

import math
from collections import OrderedDict

from headwater.access.errors import TooManyRequestsError

_LARGEST_TABLE = 10_000


class TokenBucket:
    """A rate limit that allows bursts of up to one second's requests."""

    __slots__ = ("_capacity", "_tokens", "_updated_at", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._capacity = max(1.0, rate)
        self._tokens = self._capacity
        self._updated_at = -math.inf

    def take(self, now: float, subject: str) -> None:
        """Take one token; raise TooManyRequestsError if none is left."""
        self._tokens = min(self._capacity, self._tokens + (now - self._updated_at) * self.rate)
        self._updated_at = now
        if self._tokens < 1:
            raise TooManyRequestsError(subject, (1 - self._tokens) / self.rate)
        self._tokens -= 1


class BucketTable:
    """A token bucket for each of many names; of too many, the least recently used is dropped.

    A caller with that many addresses or tokens is not limited by their buckets anyway.
    """

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, name: str, now: float, subject: str) -> None:
        """Take one token of a name; raise TooManyRequestsError if none is left."""
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _LARGEST_TABLE:
                self._buckets.popitem(last=False)
            bucket = self._buckets[name] = TokenBucket(self._rate)
        else:
            self._buckets.move_to_end(name)
        bucket.take(now, subject)
