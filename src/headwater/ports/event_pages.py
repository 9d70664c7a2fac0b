"""Pages of the log of events, for readers that follow it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headwater.ports.events import LoggedEvent

MOST_SKIPPED = 10_000
"""The largest number of skipped events that is counted."""


class FollowedEvent(msgspec.Struct, frozen=True):
    """An accepted event, and the position of the log after it."""

    logged: LoggedEvent
    position: str


class EventPage(msgspec.Struct, frozen=True):
    """The next events of the log, and the position after all events that were examined.

    ``skipped`` is the number of matching events that were too old, at most ``MOST_SKIPPED``. Events
    that were handled and moved out of a tail before they were followed count as well, all of them.
    """

    events: Sequence[FollowedEvent]
    position: str
    has_more: bool = False
    skipped: int = 0


class EventFilter(msgspec.Struct, frozen=True):
    """The events to follow: they must match all fields that are not None."""

    event_type: str | None = None
    entity_id: str | None = None
