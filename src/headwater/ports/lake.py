"""The port of a lake's upkeep, beside reading and writing its rows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from headwater.model.lake import LakeTableStatus


class Lake(Protocol):
    """The tables of a lake, which exist once it is open."""

    async def status(self) -> Sequence[LakeTableStatus]:
        """Return the size of each table."""

    async def compact(self) -> None:
        """Move every row that may leave the tail, however few they are, and merge small files."""

    async def expire(self, before: datetime) -> int:
        """Remove the snapshots from before a moment, except the present ones, and their files.

        Return the number of deleted files.
        """
