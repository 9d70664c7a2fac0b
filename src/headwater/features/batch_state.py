"""What a running batch sees and stages: its entities' values with its own writes on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

import msgspec

from headwater.core.clock import MICROSECOND
from headwater.core.values import Cell, Cells, EntityKey, FeatureValue, Part
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


_turn: ContextVar[HandlerTransaction | None] = ContextVar("headwater_turn", default=None)
_reads: ContextVar[Reads | None] = ContextVar("headwater_reads", default=None)


class HandlerTransaction:
    """One run of one handler: it sees its own writes, and they count only if it succeeds.

    It is the current turn of whatever runs here until it is closed.
    """

    __slots__ = ("_cause", "_moment", "_now", "_open", "_seen", "_staged", "_token", "_workspace")

    def __init__(self, workspace: Workspace, moment: int, now: int, cause: str) -> None:
        self._workspace = workspace
        self._moment = moment
        self._now = now
        self._cause = cause
        self._staged: Staged = {}
        # The values of each entity as this turn first saw them, to tell if they were replaced.
        self._seen: dict[LoadedState, Cells] = {}
        self._open = True
        self._token = _turn.set(self)

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
        return self._cells(self._workspace.entities[key])

    def _cells(self, entity: LoadedState) -> Cells:
        cells = entity.cells
        self._seen.setdefault(entity, cells)
        if not self._staged:
            return cells
        own = {
            name: change.cell
            for (changed, name), change in self._staged.items()
            if changed is entity and change.online
        }
        return {**cells, **own}

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
        entity = self._workspace.entities[kind, entity_id]
        before = self._cells(entity).get(name)
        as_of, now, online = self._moment, self._now, True
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
        _turn.reset(self._token)
        seen = self._seen
        for entity, _ in self._staged:
            if entity.cells is not seen[entity]:
                return None
        return self._staged


R = TypeVar("R", bound="Reads")


class Reads:
    """What a function has read: how old the oldest is, whether one had no age, made of what."""

    def __init__(self) -> None:
        self.oldest: datetime | None = None
        self.incomplete = False
        self.provenance: set[Part] = set()

    def note(self, feature: FeatureDef, entity_id: str, value: FeatureValue) -> None:
        """Takes note of a feature's value."""
        self.track_moment(value.as_of)
        self.provenance.add(("feature", feature.entity.name, feature.name, entity_id))
        self.provenance |= value.provenance

    def track_moment(self, as_of: datetime | None) -> None:
        """Takes note of the moment that something read speaks of."""
        if as_of is None:
            self.incomplete = True
        elif self.oldest is None or as_of < self.oldest:
            self.oldest = as_of


current_transaction = _turn.get
"""The turn of the handler that is running here, if one is."""

current_reads = _reads.get
"""The note of reads of the function that is being computed here, if one is."""


@contextmanager
def tracking(reads: R) -> Iterator[R]:
    """Notes what is read inside."""
    token = _reads.set(reads)
    try:
        yield reads
    finally:
        _reads.reset(token)


_alone: ContextVar[bool] = ContextVar("headwater_alone", default=False)

is_isolated = _alone.get
"""Whether what runs here shares nothing that it finds or makes with anyone else."""


@contextmanager
def isolated() -> Iterator[None]:
    """Takes nothing inside from what others asked for, and keeps nothing for them."""
    token = _alone.set(True)
    try:
        yield
    finally:
        _alone.reset(token)


ReadAt = Mapping[tuple[str, str, str], Sequence[datetime]]
"""When the values had been written that were read of an entity's feature, in the order of reads."""


class Past:
    """A span of the past in which something was read, and is to be read once more.

    What is known of a read counts. Of others, values that were written are those of the beginning,
    for most is read early; those computed for a read and kept, of the end: it may have been here.
    """

    def __init__(self, began: datetime, ended: datetime, read_at: ReadAt) -> None:
        self.began = began
        self._ended = ended
        self._read_at = {key: list(moments) for key, moments in read_at.items()}

    def moment(self, feature: FeatureDef, entity_id: str) -> datetime:
        """The moment at which the value was known that is to be read next."""
        known = self._read_at.get((feature.entity.name, feature.name, entity_id))
        if known:
            return known[0]
        return self.began if feature.stored else self._ended

    def note(self, feature: FeatureDef, entity_id: str) -> None:
        """Takes note of a read: the next one is of the value after it, if there was another."""
        known = self._read_at.get((feature.entity.name, feature.name, entity_id), [])
        if len(known) > 1:
            del known[0]


_past: ContextVar[Past | None] = ContextVar("headwater_past", default=None)

current_past = _past.get
"""The past whose values are read here, if it is not the present."""


@contextmanager
def at_moment(
    began: datetime, ended: datetime | None = None, read_at: ReadAt = MappingProxyType({})
) -> Iterator[None]:
    """Reads the values inside that were served at a moment, or from one to another."""
    token = _past.set(Past(began, ended or began, read_at))
    try:
        # Reads that are noted never take the short way, which knows nothing of the past.
        with isolated(), tracking(current_reads() or Reads()):
            yield
    finally:
        _past.reset(token)
