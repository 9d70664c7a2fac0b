"""Append events to a partition."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from hashlib import blake2b
from typing import Any

from headwater.backends.redis.client import Call, script_call
from headwater.backends.redis.keys import Keys
from headwater.backends.redis.stream_codec import event_fields
from headwater.core.clock import MICROSECOND, Clock
from headwater.model.values import ServiceEvent
from headwater.ports import event_content

_KEY_BYTES = 16
UNCHECKED = 2**53
"""For events that were accepted before, which workers compare with the erasures."""


class StreamPublisher:
    """Builder of the calls that append events, each id once within the dedup window."""

    def __init__(self, keys: Keys, clock: Clock, dedup_limit: int) -> None:
        self._keys = keys
        self._clock = clock
        self._dedup_limit = max(1, dedup_limit // keys.partitions)

    def call(
        self,
        partition: int,
        events: Sequence[ServiceEvent],
        dedup_window: timedelta | None,
        only: str = "",
        checked: int = UNCHECKED,
    ) -> Call:
        """Return the call for events of one partition, for all features or for one only.

        ``checked`` is the number of erasures that the events were compared with.
        """
        keys, now = self._keys.parts[partition], self._clock.micros()
        names = [keys.events, keys.seen, keys.accepted, keys.idle, keys.erasures]
        if only:
            names.append(keys.unhandled(only.rpartition("/")[0]))
        window_end = 0 if dedup_window is None else now + dedup_window // MICROSECOND
        arguments: list[Any] = []
        for event in events:
            seen = _seen(event) if window_end else ("", "")
            arguments += (*seen, *event_fields(event, only))
        return script_call(
            "publish",
            names,
            *(self._keys.wake, partition, now, window_end, self._dedup_limit, checked),
            *arguments,
        )


def _seen(event: ServiceEvent) -> tuple[bytes, bytes]:
    """Return the key under which an event is remembered, of a fixed size, and its content."""
    name = f"{event.event_id}\0{event.entity_id}"
    return blake2b(name.encode(), digest_size=_KEY_BYTES).digest(), event_content(event)
