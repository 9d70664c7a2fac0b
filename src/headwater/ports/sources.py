"""The port of tables that hold the sources of SQL features where queries cannot read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from headwater.model.problems import OnStep
from headwater.model.sources import LoadedSource, SourceTable


class SourceTables(Protocol):
    """The tables that queries read in place of sources."""

    async def tables(self, names: Sequence[str]) -> Mapping[str, SourceTable]:
        """Return the table or view that queries read for each source that has one."""

    async def load(self, name: str, location: str, progress: OnStep | None = None) -> LoadedSource:
        """Replace the table of a source by its present rows, in one transaction.

        Readers see the earlier rows or the new ones. Loading the same rows again changes nothing.
        A table or view that was not made by this is refused and stays. If it fails, the earlier
        rows stay.
        """
