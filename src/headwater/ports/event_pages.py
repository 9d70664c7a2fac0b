"""Pages of the log of events, for readers that follow it."""

from __future__ import annotations

import msgspec

MOST_SKIPPED = 10_000
"""The largest number of skipped events that is counted."""


class EventFilter(msgspec.Struct, frozen=True):
    """The events to follow: they must match all fields that are not None."""

    event_type: str | None = None
    entity_id: str | None = None
