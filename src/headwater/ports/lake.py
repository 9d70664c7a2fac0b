"""The port of a lake's upkeep, beside reading and writing its rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from headwater.model.lake import LakeTableStatus
from headwater.ports.history import FrameReader


class Lake(Protocol):
    """The tables of a lake, which exist once it is open."""

    async def status(self) -> Sequence[LakeTableStatus]:
        """Return the size of each table."""

    async def at(self, snapshot_id: int) -> FrameReader:
        """Return a reader of history as it was in a snapshot, which gives the same bits each time.

        Raise InvalidInputError if there is no such snapshot any more.
        """

    async def compact(self) -> None:
        """Move every row that may leave the tail, however few they are, and merge small files."""

    async def expire(self, before: datetime) -> int:
        """Remove the snapshots from before a moment, except the present ones, and their files.

        Return the number of deleted files.
        """
