"""The present: every entity's values, read and written by whoever serves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from headwater.core.codec import Kind
from headwater.core.values import Cell, Cells, EntityKey, merge_cells


class EntityState(msgspec.Struct, frozen=True, gc=False):
    """An entity's values and the version they were read at; 0 for an entity that has none."""

    version: int
    cells: Cells


class Change(msgspec.Struct, frozen=True, gc=False):
    """A value that a feature took on: a row of history, and online unless it came too late."""

    feature: str
    entity: str
    entity_id: str
    kind: Kind
    cell: Cell
    cause: str
    online: bool = True
    authoritative: bool = True

    @property
    def key(self) -> EntityKey:
        return (self.entity, self.entity_id)


def by_entity(changes: Iterable[Change]) -> dict[EntityKey, list[Change]]:
    """The changes that are to be seen online, by entity."""
    found: dict[EntityKey, list[Change]] = {}
    for change in changes:
        if change.online:
            found.setdefault(change.key, []).append(change)
    return found


def newest(changes: Iterable[Change]) -> Cells:
    """One entity's values after its changes: of each feature the one of the latest moment."""
    cells: Cells = {}
    for change in changes:
        cells = merge_cells(cells, {change.feature: change.cell})
    return cells


class OnlineStore(Protocol):
    """The present values of every entity.

    A read sees every write that returned before it began. A value whose time to live is over is
    still returned; its cell says so, and readers treat it as absent.
    """

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        """The values of each entity, in the order asked, empty for an unknown one."""
        ...

    async def get_packed(self, entity: str, entity_ids: Sequence[str]) -> list[bytes | msgspec.Raw]:
        """The same as the JSON text of ``Cells``, for readers that want only a part of it."""
        ...

    async def get_state(self, key: EntityKey) -> EntityState:
        """One entity's values with their version, for a later commit to check."""
        ...

    async def put(self, changes: Sequence[Change]) -> None:
        """Writes values online and to history as one; other values of the entities stay.

        A change that speaks of an earlier moment than the value online goes to history alone.
        A change that is not authoritative, such as a cached computation, does not disturb
        batches that are being run.
        """
        ...

    async def restore(self, entity: str, values: Mapping[str, Cells]) -> None:
        """Writes values that history already holds, by entity id, where online has none or older.

        A value online stays if it speaks of a later moment, or of the same one and was written
        no earlier. Entities that stay as they are do not disturb batches that are being run.
        """
        ...

    async def entity_ids(
        self,
        entity: str,
        *,
        after: str,
        limit: int,
        partition: int | None = None,
        having: str | None = None,
    ) -> list[str]:
        """The next known ids of an entity in sorted order, of one partition or with one feature."""
        ...
