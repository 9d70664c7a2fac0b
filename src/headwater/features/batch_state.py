"""What a running batch sees and stages: its entities' values with its own writes on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from headwater.core.clock import MICROSECOND
from headwater.core.values import Cell, Cells, EntityKey
from headwater.declarations.features import FeatureDef
from headwater.errors import ClosedError
from headwater.ports import Change, EntityState, OnlineStore


def make_cell(feature: FeatureDef, value: object, as_of: int, now: int) -> Cell:
    """The stored form of a value, refused if it does not fit the feature's type."""
    expires_at = now + feature.ttl // MICROSECOND if feature.ttl else None
    return Cell(msgspec.Raw(feature.codec.encode(value)), as_of, now, expires_at)


def make_change(
    feature: FeatureDef,
    entity_id: str,
    cell: Cell,
    cause: str,
    *,
    online: bool = True,
    authoritative: bool = True,
) -> Change:
    """The history row of a value that a feature took on."""
    return Change(
        feature.name,
        feature.entity.name,
        entity_id,
        feature.codec.kind,
        cell,
        cause,
        online,
        authoritative,
    )


class LoadedState:
    """An entity in a batch: its version when it was read, and its values as they are by now."""

    __slots__ = ("cells", "version", "written")

    def __init__(self, state: EntityState) -> None:
        self.version = state.version
        self.cells: Cells = state.cells
        """A write puts new ones in their place."""
        self.written = False


Staged = dict[tuple[LoadedState, str], Change]
"""What a turn wrote: the last change of each entity's feature."""


class Workspace:
    """The states a batch was read with, and what its handlers have done to them so far."""

    def __init__(self, online: OnlineStore, states: Mapping[EntityKey, EntityState]) -> None:
        self._online = online
        self.entities = {key: LoadedState(state) for key, state in states.items()}
        self.changes: list[Change] = []

    async def load(self, key: EntityKey) -> None:
        """Loads an entity that the batch did not come with."""
        state = await self._online.get_state(key)
        if key not in self.entities:
            self.entities[key] = LoadedState(state)

    def keep(self, staged: Staged) -> None:
        """Takes over what a handler staged."""
        for (entity, name), change in staged.items():
            if change.online:
                entity.cells = {**entity.cells, name: change.cell}
                entity.written = True
            self.changes.append(change)

    def versions(self) -> dict[EntityKey, int]:
        """The version that each entity was read with."""
        return {key: entity.version for key, entity in self.entities.items()}

    def written(self) -> dict[EntityKey, Cells]:
        """The values of the entities that were written to."""
        return {key: entity.cells for key, entity in self.entities.items() if entity.written}


class HandlerTransaction:
    """One run of one handler: it sees its own writes, and they count only if it succeeds.

    It is the current turn of whatever runs here until it is closed.
    """

    __slots__ = ("_cause", "_moment", "_open", "_seen", "_staged", "_workspace", "now")

    def __init__(self, workspace: Workspace, moment: int, now: int, cause: str) -> None:
        self._workspace = workspace
        self._moment = moment
        self.now = now
        self._cause = cause
        self._staged: Staged = {}
        # The values of each entity as this turn first saw them, to tell if they were replaced.
        self._seen: dict[LoadedState, Cells] = {}
        self._open = True

    async def get(self, entity: str, entity_ids: Sequence[str]) -> list[Cells]:
        """Values of entities with this turn's writes on top."""
        return [await self.cells((entity, entity_id)) for entity_id in entity_ids]

    async def cells(self, key: EntityKey) -> Cells:
        """The same for one entity."""
        if key not in self._workspace.entities:
            await self._workspace.load(key)
        return self.loaded(key)

    def loaded(self, key: EntityKey) -> Cells:
        """The same for an entity that the batch has loaded, as it has those of its own events.

        Raises KeyError for any other.
        """
        entity = self._workspace.entities[key]
        cells = entity.cells
        self._seen.setdefault(entity, cells)
        if not self._staged:
            return cells
        written = {
            name: change.cell
            for (changed, name), change in self._staged.items()
            if changed is entity and change.online
        }
        return {**cells, **written}

    async def set(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stages a value; its moment is the event's, or the replaced value's if that is later."""
        await self.cells((feature.entity.name, entity_id))
        self.stage(feature, entity_id, value)

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """The same for an entity that the batch has loaded."""
        if not self._open:
            raise ClosedError(
                f"a handler set {feature.name!r} after its run was over; await what it starts"
            )
        name, kind = feature.name, feature.entity.name
        key = (kind, entity_id)
        entity, before = self._workspace.entities[key], self.loaded(key).get(name)
        as_of, now, online = self._moment, self.now, True
        if before is not None and before.as_of >= as_of:
            online = before.as_of == as_of or feature.order == "stream"
            if online:
                # Of one moment the one written last counts: this one, whatever the clocks say.
                as_of, now = before.as_of, max(now, before.written_at + 1)
        cell = make_cell(feature, value, as_of, now)
        self._staged[entity, name] = Change(
            name, kind, entity_id, feature.codec.kind, cell, self._cause, online
        )

    def close(self) -> Staged | None:
        """Ends the turn: its changes, or None if an entity it wrote to was changed meanwhile."""
        self._open = False
        seen = self._seen
        for entity, _ in self._staged:
            if entity.cells is not seen[entity]:
                return None
        return self._staged
