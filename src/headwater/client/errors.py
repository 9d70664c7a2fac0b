"""The error of a publisher; ``headwater.errors`` has all others.

HeadwaterError
└── RemoteError
    └── PublishFailedError   events that the server did not accept
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headwater.errors import HeadwaterError, RemoteError
from headwater.model.values import ServiceEvent

_SHOWN = 5


class FailedEvent(NamedTuple):
    """An event that was not accepted, and why."""

    event: ServiceEvent
    error: HeadwaterError


class PublishFailedError(RemoteError):
    """Events of a publisher that were not accepted; ``failures`` has each with its error."""

    def __init__(self, failures: Sequence[FailedEvent]) -> None:
        self.failures = list(failures)
        count = len(self.failures)
        shown = [f"{each.event.event_id}: {each.error}" for each in self.failures[:_SHOWN]]
        if count > _SHOWN:
            shown.append(f"{count - _SHOWN} more in `failures`")
        noun = "event was" if count == 1 else "events were"
        super().__init__(f"{count} {noun} not published: {'; '.join(shown)}")
