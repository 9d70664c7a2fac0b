"""Current values of entities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from headwater.core.codec import Kind
from headwater.model.values import Cell, Cells, EntityKey, merge_cells

T = TypeVar("T")


class EntityState(msgspec.Struct, frozen=True, gc=False):
    """An entity's values and their version; version 0 means that there are none."""

    version: int
    cells: Cells


class Change(msgspec.Struct, frozen=True, gc=False):
    """A new value of a feature: a row of history, and the current value if ``online``."""

    feature: str
    entity: str
    entity_id: str
    kind: Kind
    cell: Cell
    cause: str
    online: bool = True
    authoritative: bool = True
    begins: bool = True
    """Whether it may be the first value of an erased entity that may return."""
    state: Cell | None = None
    """The state that a contribution was folded into, which is the current value in its place."""

    @property
    def key(self) -> EntityKey:
        return (self.entity, self.entity_id)

    @property
    def current(self) -> Cell:
        """The current value if it is ``online``."""
        return self.cell if self.state is None else self.state


def by_entity(changes: Iterable[Change]) -> dict[EntityKey, list[Change]]:
    """Group the changes of current values by entity."""
    grouped: dict[EntityKey, list[Change]] = {}
    for change in changes:
        if change.online:
            grouped.setdefault(change.key, []).append(change)
    return grouped


def history_rows(
    changes: Iterable[Change], convert: Callable[[msgspec.Raw], T]
) -> list[tuple[str, str, str, Kind, T, int, int, str]]:
    """Return the rows of history, with the values in the form that a backend stores."""
    return [
        (
            change.feature,
            change.entity,
            change.entity_id,
            change.kind,
            convert(change.cell.value),
            change.cell.as_of,
            change.cell.written_at,
            change.cause,
        )
        for change in changes
    ]


def newest(changes: Iterable[Change]) -> Cells:
    """Return the latest value of each feature among the changes of one entity."""
    cells: Cells = {}
    for change in changes:
        cells = merge_cells(cells, {change.feature: change.cell})
    return cells


class Standing(NamedTuple):
    """The values of an entity, and which events are not in them."""

    cells: Cells
    waiting_since: int | None = None
    """When the oldest waiting event of its partition was accepted."""
    unhandled: frozenset[str] = frozenset()
    """The series that could not handle an event of the entity, which is a dead letter since."""


Replacement = tuple[Cell | None, Cell | None]
"""The value that is expected online, and the one to write in its place; None for no value."""


class OnlineStore(Protocol):
    """The current values of every entity.

    A read sees every write that returned before it began. An expired value is still returned; its
    cell says that it is expired, and readers treat it as absent.
    """

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        """Return the values of each entity in the order of the ids, empty for an unknown id."""

    async def get_packed(self, entity: str, entity_ids: Sequence[str]) -> list[bytes | msgspec.Raw]:
        """Return the same as JSON texts of ``Cells``, for readers that need only a part."""

    async def get_with_waiting(self, entity: str, entity_ids: Sequence[str]) -> list[Standing]:
        """Return the values of each entity, and which events are not in them.

        An event waits until the consumer group has committed it; all events of the entity's
        partition count. A series has not handled an event of the entity while there is a dead
        letter of both and of the consumer group, and after its redrive until that is committed.
        If none waits and nothing is unhandled, every event accepted before the read is in the
        values. This takes as many round trips as ``get``.
        """

    async def get_state(self, key: EntityKey) -> EntityState:
        """Return an entity's values with their version, which a later commit checks."""

    async def put(self, changes: Sequence[Change]) -> int:
        """Write values online and to history atomically; other values of the entities stay.

        Values of an erased entity are left out, unless it may return, they are of after the
        erasure, and it has values again or the change may be its first; return their number.

        A change with an earlier ``as_of`` than the current value goes to history only. Of two
        changes with one ``as_of``, the one with the later or same ``written_at`` counts. A change
        that is not authoritative, such as a cached computation, does not make running batches
        conflict.
        """

    async def restore(self, entity: str, values: Mapping[str, Cells]) -> None:
        """Write values from history, by entity id, where the current value is missing or older.

        A current value stays if its ``as_of`` is later, or equal and it was written no earlier.
        Entities without a change do not make running batches conflict. Values of an erased entity
        are left out, unless it may return and they are of after the erasure.
        """

    async def replace(
        self, entity: str, series: str, cells: Mapping[str, Replacement]
    ) -> Sequence[str]:
        """Write one value of each entity where the current one is still the expected one.

        ``cells`` has the expected value and the new one by entity id; None stands for no value.
        Return the ids of the entities that had another value than the expected one and keep it.
        History does not change. Running batches of the entities that were written to conflict.
        Values of an erased entity are left out as by ``restore``.
        """

    async def entity_ids(
        self,
        entity: str,
        *,
        after: str,
        limit: int,
        partition: int | None = None,
        having: str | None = None,
    ) -> list[str]:
        """Return the next ids in sorted order, of one partition or with one feature."""

    async def count(self, entity: str, series: Sequence[str]) -> list[int]:
        """Return how many entities have a value of each series, in one pass over all of them."""

    async def drop(self, entity: str, series: str) -> int:
        """Remove the values of a series from all entities; return their number.

        Entities that are written to meanwhile keep their other values.
        """

    async def forget(self, entity: str, entity_id: str) -> int:
        """Remove an entity with all its values, so that no list has it; return their number.

        A running batch that has read the entity cannot be committed.
        """
