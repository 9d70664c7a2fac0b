"""ReplayJob and its progress: plain values that any process can be sent."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

import msgspec

from headwater.declarations.features import Order
from headwater.features.services import Services


class StoreSource(Protocol):
    """A way for any process to open the store; it is pickled."""

    def open(self) -> AbstractAsyncContextManager[Services]:
        """Load the declarations and open the store in the running event loop."""


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of stored events through the present handler of one feature.

    ``files`` are the files that `OfflineStore.export_events` wrote. All results are kept in
    ``folder``: running the same job again, after a crash or at the same time in another process,
    continues from there and gives the same result.
    """

    source: StoreSource
    feature: str
    series: str
    """The name that the new values are stored under."""
    definition: str = ""
    """A hash of the code of the feature; a process that has loaded other code is refused."""
    folder: Path
    files: Sequence[Path]
    order: Order = "stream"
    """The order of the feature, which decides of which time the value of a late event is."""
    since: datetime | None = None
    """With it, events whose values are of before it are left out: values start from those of the
    served version."""
    until: datetime | None = None
    """With it, events whose values are of it or later are left out, and of the new values of an
    entity only those are kept that are before the first one that it has in ``series``."""
    snapshot_seconds: float = 30.0
    """How often results are committed; a process that dies loses at most this much work."""


class ReplayProgress(msgspec.Struct, frozen=True):
    """How many of the events have been replayed, and the seconds left, if that can be told."""

    events: int
    total: int
    seconds_left: float | None = None
