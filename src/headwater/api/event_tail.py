"""Server-sent events of the live tail of the event log."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headwater.core.values import ServiceEvent

EVENT_STREAM = "text/event-stream"


class TailedEvent(msgspec.Struct, frozen=True):
    """The data of a message without a type: an accepted event, and when it was accepted."""

    event: ServiceEvent
    received_at: datetime


class TailGap(msgspec.Struct, frozen=True):
    """The data of a message of the type ``gap``: events that were left out.

    ``skipped`` is their number; 10,000 means that many or more.
    """

    skipped: int
