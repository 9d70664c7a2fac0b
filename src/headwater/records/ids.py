"""Context ids: UUIDv7, strictly increasing within a process, by millisecond across processes."""

from __future__ import annotations

import os
import time
from threading import Lock

_COUNTER_BITS = 12
_FIRST_BITS = 11
_RANDOM_BITS = 62
_HASH_LENGTH = 64
HEX = frozenset("0123456789abcdef-")
"""The characters of context ids."""


class ContextIds:
    """Generator of strictly increasing ids, also if the clock goes back or threads compete.

    The first id of a millisecond starts the counter at a random number in its lower half, so ids of
    concurrent processes do not collide and about two thousand more ids fit into the millisecond.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._last = 0

    def new(self, millis: int | None = None) -> str:
        """Return an id of the current millisecond, or of the last one if the clock went back."""
        if millis is None:
            millis = time.time_ns() // 1_000_000
        random = int.from_bytes(os.urandom(10), "big")
        start = millis << _COUNTER_BITS | random >> (80 - _FIRST_BITS)
        with self._lock:
            # One number holds millisecond and counter, so a full counter carries into the next one.
            later = start >> _COUNTER_BITS > self._last >> _COUNTER_BITS
            self._last = start if later else self._last + 1
            moment, counter = divmod(self._last, 1 << _COUNTER_BITS)
        value = moment << 80 | 7 << 76 | counter << 64 | 2 << _RANDOM_BITS
        text = f"{value | random & (1 << _RANDOM_BITS) - 1:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def after_fork(self) -> None:
        """Replace the lock: a thread of the parent process may have held it during the fork."""
        self._lock = Lock()


_IDS = ContextIds()
os.register_at_fork(after_in_child=_IDS.after_fork)


def new_context_id(millis: int | None = None) -> str:
    """Return a new id, larger than every earlier one of this process."""
    return _IDS.new(millis)


def spelled(ref: str) -> str:
    """Return a context id or record hash as records write it; add the prefix to a bare hash."""
    ref = ref.strip().lower()
    return f"sha256:{ref}" if len(ref) == _HASH_LENGTH and HEX.issuperset(ref) else ref


_ID_LENGTH = 36


def named(ref: str) -> str | None:
    """Return the id or hash if a reference is complete, or None for the beginning of an id."""
    return None if len(ref) < _ID_LENGTH else spelled(ref)
