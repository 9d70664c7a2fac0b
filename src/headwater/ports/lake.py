"""The port of a lake's upkeep, next to reading and writing its rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from headwater.model.lake import LakeTableStatus
from headwater.ports.history import FrameReader


class LakeSnapshot(NamedTuple):
    """History as it was in a snapshot."""

    reader: FrameReader
    """It gives the same bits each time."""
    pruned: datetime | None
    """The moment up to which rows had been pruned by then."""


class Lake(Protocol):
    """The tables of a lake, which exist once it is open."""

    async def status(self) -> Sequence[LakeTableStatus]:
        """Return the size of each table."""

    async def at(self, snapshot_id: int) -> LakeSnapshot:
        """Return a snapshot; raise InvalidInputError if it does not exist any more."""

    async def compact(self) -> None:
        """Move every row that may leave the tail, however few they are, and merge small files."""

    async def expire(self, before: datetime) -> int:
        """Remove the snapshots from before a moment, except the present ones, and their files.

        Return the number of deleted files.
        """
