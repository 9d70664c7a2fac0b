"""Messages of the live tail of the event log."""

from __future__ import annotations

import msgspec

EVENT_STREAM = "text/event-stream"


class TailGap(msgspec.Struct, frozen=True):
    """The data of a message of the type ``gap``: events that were left out.

    ``skipped`` is their number; 10,000 means that many or more.
    """

    skipped: int
