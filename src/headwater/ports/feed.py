"""Events from a log elsewhere, such as Kafka's: appended to the bus, each record once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol

import msgspec

from headwater.model.values import ServiceEvent
from headwater.ports.events import Subjects, no_subjects


class FeedRecord(msgspec.Struct, frozen=True, gc=False):
    """A record of the log: its offset, and its event or why there is none.

    ``content`` is remembered with the id of the event; empty if a repetition is not looked for.
    ``raw`` is the record of which no event could be made.
    """

    offset: int
    event: ServiceEvent | None
    content: bytes = b""
    awaited: bool = False
    problem: str = ""
    raw: bytes = b""


class LogRange(NamedTuple):
    """The records of a partition between two offsets, except records that the log left out."""

    partition: int
    first: int
    after: int
    records: Sequence[FeedRecord]


class FedRecord(NamedTuple):
    """What became of a record: the content with which another one has its id, its position."""

    known: bytes | None = None
    position: str = ""
    erased: bool = False


class FedRange(NamedTuple):
    """The offset that is appended next (None if the feed has not begun), and the records."""

    offset: int | None
    is_full: bool
    records: Sequence[FedRecord]


class FeedState(NamedTuple):
    """How far the feed of a partition is; ``left_out`` counts records that were not appended.

    ``stored`` is the latest known offset before which all events and their effects are in history,
    and the position of the event before it. ``log`` is what the offsets are of, ``found`` the log
    that was last found in its place: the same one, unless that was created again or replaced.
    """

    offset: int | None
    left_out: int
    stored: tuple[int, str] | None
    log: str = ""
    found: str = ""

    @property
    def is_stopped(self) -> bool:
        return self.log not in ("", self.found)


class Feed(Protocol):
    """The end of a bus to which records of a log are appended.

    Each record is appended once, in the order of the offsets, whatever the number of processes that
    append it and wherever they die. A record whose event is known is left out, as is one of an
    erased entity.
    """

    async def append(
        self,
        ranges: Sequence[LogRange],
        *,
        dedup_window: timedelta | None,
        subjects: Subjects = no_subjects,
    ) -> list[FedRange]:
        """Append the records of ranges that begin at or before the next offset.

        Others, and all while too many events wait, only claim the ids of their events; so does a
        feed that has not begun, or that stopped because another log was found.
        """

    async def begin(self, offsets: Mapping[int, int], log: str) -> None:
        """Begin to append at these offsets of a log in the partitions that have not begun."""

    async def found(self, log: str) -> None:
        """Note which log is there; the feed stops while it is another than it began with."""

    async def states(self) -> list[FeedState]:
        """Return the state of each partition of entities."""

    async def positions(
        self, awaited: Collection[tuple[int, int]], *, wait: bool
    ) -> dict[tuple[int, int], str]:
        """Return the positions of awaited records by partition and offset; "" if none is known.

        Those that were not appended yet are left out; with ``wait``, return when all were.
        """

    def is_erased(self, event: ServiceEvent, subjects: Subjects) -> bool:
        """Return whether this process knows that an entity of the event was erased."""


class Feeder(Protocol):
    """Appends the records of a log to the bus."""

    async def run(self, held: Collection[int], subjects: Subjects) -> None:
        """Append the records of the partitions that a worker holds at any time, until cancelled."""
