"""The state of a running batch: the values of its entities and the writes of its handlers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.declarations.features import FeatureDef
from headwater.errors import ClosedError
from headwater.features.cells import make_cell
from headwater.model.values import Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import Change, Delivery, DocumentWrite, EntityState, Ledger, Tombstone
from headwater.windows.state import covers, decode_state, encode_state, fold, new_state

_PLAIN = frozenset({int, float, str, bool})
Contributed = Literal["done", "late", "unusable"]
"""What became of a contribution: one that is late is in history only, and one whose state is
unusable was not staged."""


class LoadedEntity:
    """An entity in a batch: its version when it was read, and its values by now."""

    __slots__ = ("cells", "is_written", "version")

    def __init__(self, state: EntityState) -> None:
        self.version = state.version
        self.cells: Cells = state.cells
        """Never changed in place: a write replaces the dictionary."""
        self.is_written = False


GetState = Callable[[EntityKey], Awaitable[EntityState]]


class FinishedRun(NamedTuple):
    """A run of a handler whose batch was not committed: its reads and its writes."""

    seen: Mapping[EntityKey, Cells]
    changes: Sequence[Change]
    documents: Sequence[DocumentWrite]


FinishedRuns = Mapping[tuple[str, str], FinishedRun]
"""Runs by the position of their event and the series of their feature."""

StagedChanges = dict[tuple[LoadedEntity, str], Change]
"""The writes of one handler: the last change of each entity's series."""


async def _no_values(_: EntityKey) -> EntityState:
    return EntityState(0, {})


class BatchState:
    """The entities of a batch, with the writes of the handlers that have succeeded so far."""

    def __init__(
        self,
        partition: int = 0,
        states: Mapping[EntityKey, EntityState] = MappingProxyType({}),
        get_state: GetState = _no_values,
        ledger: Ledger | None = None,
        finished: FinishedRuns = MappingProxyType({}),
    ) -> None:
        self._get_state = get_state
        self._now = 0
        self._ledger = Ledger() if ledger is None else ledger
        self.partition = partition
        self.entities = {key: LoadedEntity(state) for key, state in states.items()}
        self.finished = finished
        """Runs of these events that count again, if what they saw is unchanged."""
        self.runs: list[tuple[HandlerTransaction, FeatureDef]] | None = None
        """The runs that count, in the order of their ends, if the batch may have to run again."""
        self._queues: dict[LoadedEntity, asyncio.Lock] = {}
        self.changes: list[Change] = []
        self.documents: list[DocumentWrite] = []
        self.dropped: dict[Tombstone, int] = {}
        """How many changes were left out because their entity was erased."""

    def begin(self, delivery: Delivery, moment: int, now: int) -> HandlerTransaction:
        """Return the transaction of one run of a handler."""
        # A clock that is set back is followed by the next batch: the state of windows would be made
        # again from history, which does not have the contributions of this one.
        self._now = max(now, self._now)
        return HandlerTransaction(self, moment, self._now, delivery)

    async def load(self, key: EntityKey) -> None:
        """Load an entity that the batch was read without."""
        state = await self._get_state(key)
        if key not in self.entities:
            self.entities[key] = LoadedEntity(state)

    def queue(self, lost: HandlerTransaction) -> asyncio.Lock:
        """Return the lock in whose order runs that have lost the same entity to others repeat."""
        return self._queues.setdefault(lost.lost, asyncio.Lock())

    async def repeat(self, delivery: Delivery, series: str) -> StagedChanges | None:
        """Let a finished run count again; return its changes, or None if it has to run."""
        run = self.finished.get((delivery.position, series))
        if run is None:
            return None
        for key in run.seen.keys() - self.entities.keys():
            await self.load(key)
        if any(self.entities[key].cells != cells for key, cells in run.seen.items()):
            return None
        staged = {(self.entities[change.key], change.feature): change for change in run.changes}
        self.apply(staged, delivery)
        self.documents += run.documents
        return staged

    def finished_runs(self) -> FinishedRuns:
        """Return the runs of this batch, and earlier ones that it has not replaced."""
        keys = {entity: key for key, entity in self.entities.items()}
        return {
            **self.finished,
            **dict(run.finished(feature, keys) for run, feature in self.runs or ()),
        }

    def apply(self, staged: StagedChanges, delivery: Delivery) -> None:
        """Apply the writes of a handler that has succeeded, except to erased entities."""
        if self._ledger.revision:
            staged = self._admitted(staged, delivery)
        for (entity, series), change in staged.items():
            if change.online:
                current = change.cell if change.state is None else change.state
                entity.cells = {**entity.cells, series: current}
                entity.is_written = True
        self.changes += staged.values()

    def _admitted(self, staged: StagedChanges, delivery: Delivery) -> StagedChanges:
        """Return the changes of entities that are not erased, and count the others."""
        admitted: StagedChanges = {}
        for place, change in staged.items():
            tombstone = self._ledger.find(*change.key)
            if tombstone and not tombstone.admits_event(delivery.event, delivery.position):
                self.dropped[tombstone] = self.dropped.get(tombstone, 0) + 1
            else:
                admitted[place] = change
        return admitted

    def versions(self) -> dict[EntityKey, int]:
        """Return the version that each entity was read with."""
        return {key: entity.version for key, entity in self.entities.items()}

    def written(self) -> dict[EntityKey, Cells]:
        """Return the values of the entities that were written to."""
        return {key: entity.cells for key, entity in self.entities.items() if entity.is_written}


class HandlerTransaction:
    """One run of one handler: it sees its own writes, which count only if it succeeds."""

    __slots__ = (
        "_delivery",
        "_documents",
        "_is_open",
        "_moment",
        "_seen",
        "_staged",
        "_state",
        "cause",
        "lost",
        "now",
    )

    is_past = False
    """Whether it is of a moment of the past, which functions then see as the time."""
    published: list[ServiceEvent] | None = None
    """Where events are collected that the run publishes; None if they are published at once."""
    has_provenance = True
    """Whether it matters what values are computed from, and not only as of when they are."""

    def __init__(self, state: BatchState, moment: int, now: int, delivery: Delivery) -> None:
        self._state = state
        self._moment = moment
        self._delivery = delivery
        self.cause = delivery.event.event_id
        self._staged: StagedChanges = {}
        self._documents: dict[tuple[str, str], DocumentWrite] | None = None
        # The values of each entity when this run first saw them, to detect that others wrote.
        self._seen: dict[LoadedEntity, Cells] = {}
        self._is_open = True
        self.lost: LoadedEntity
        """The entity because of which `close` returned None."""
        self.now = now

    @property
    def known_at(self) -> datetime | None:
        """The moment whose served values it reads, if they are not those of present versions."""
        return None

    def observe_moment(self) -> None:
        """Note that the run has asked for the time."""

    async def get(
        self, entity: str, entity_ids: Sequence[str], _features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return at least these features of entities, with the writes of this run."""
        return [await self.cells((entity, entity_id)) for entity_id in entity_ids]

    async def cells(self, key: EntityKey) -> Cells:
        """Return the values of one entity, with the writes of this run."""
        if key not in self._state.entities:
            await self._state.load(key)
        return self.loaded(key)

    def loaded(self, key: EntityKey) -> Cells:
        """Return the values of an entity that is loaded, as those of the batch's events are.

        Raise KeyError for any other entity.
        """
        entity = self._state.entities[key]
        cells = entity.cells
        self._seen.setdefault(entity, cells)
        if not self._staged:
            return cells
        written = {
            series: change.current
            # A copy: a sync handler reads in its thread, and other threads of its may write.
            for (changed, series), change in tuple(self._staged.items())
            if changed is entity and change.online
        }
        return {**cells, **written}

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return one value of an entity that is loaded; raise KeyError for any other entity."""
        if self._staged:
            return self.loaded(key).get(feature.series)
        entity = self._state.entities[key]
        cells = entity.cells
        self._seen.setdefault(entity, cells)
        return cells.get(feature.series)

    def check_allowed(self, verb: str) -> None:
        """Raise an error if handlers may not call a verb of the store, other than to read values.

        All verbs are allowed, unless past events are replayed.
        """

    def refuse_read(self, verb: str) -> None:
        """Raise an error because a verb reads the present, and the transaction is of the past."""
        self.check_allowed(verb)

    def is_computable(self, feature: FeatureDef) -> bool:
        """Return whether a value that is not stored is computed, and not missing.

        Raise an error if handlers may not read a feature that is computed at every read.
        """
        return True

    async def set(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stage a value; it is as of the event, or as of the value it replaces if that is later."""
        await self.cells((feature.entity.name, entity_id))
        self.stage(feature, entity_id, value)

    def _check_open(self, feature: FeatureDef) -> None:
        if not self._is_open:
            raise ClosedError(
                f"a handler set {feature.name!r} after its run had ended; await the tasks that it "
                "starts"
            )

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stage a value of an entity that is loaded."""
        self._check_open(feature)
        series, kind = feature.series, feature.entity.name
        key = (kind, entity_id)
        entity = self._state.entities[key]
        cells = self.loaded(key) if self._staged else self._seen.setdefault(entity, entity.cells)
        before = cells.get(series)
        as_of, now, online = self._moment, self.now, True
        if before is not None and before.as_of >= as_of:
            online = before.as_of == as_of or feature.order == "stream"
            if online:
                # Of two values of one moment the later write counts: this one, although the clock
                # of the worker that wrote the other may be ahead.
                as_of, now = before.as_of, max(now, before.written_at + 1)
        cell = make_cell(feature, value, as_of, now)
        self._staged[entity, series] = Change(
            series, kind, entity_id, feature.codec.kind, cell, self.cause, online
        )

    def contribute(
        self,
        feature: FeatureDef,
        entity_id: str,
        value: object,
        made_again: Cell | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Contributed:
        """Stage a contribution, and the state of its windows with it.

        A state of another plan is not folded into, nor one that lacks tiles of this moment, because
        a worker whose clock was ahead dropped them; the one to use in its place is made again from
        history. So a later run of the batch reads the state, and not history without this one.
        """
        self._check_open(feature)
        windows = feature.windows
        assert windows is not None, "only families have contributions"
        entity = self._state.entities[feature.entity.name, entity_id]
        cells = self._seen.setdefault(entity, entity.cells)
        stored = cells.get(feature.series)
        before = stored if made_again is msgspec.UNSET else made_again
        # The times at which contributions were written are their order.
        written_at = self.now if stored is None else max(self.now, stored.written_at + 1)
        text, plan, at = feature.codec.encode(value), windows.plan, self._moment
        taken = windows.taken(value if type(value) in _PLAIN else msgspec.json.decode(text))
        is_late = False
        # An entity has a state as soon as it has a contribution, also one that does not count: only
        # so other windows find out that there is something in history to make a state of.
        if before is not None and taken is None:
            encoded = before.value
        else:
            state = (
                new_state(plan, self.now) if before is None else decode_state(plan, before.value)
            )
            if state is None or not covers(plan, state, self.now):
                return "unusable"
            if taken is not None:
                is_late = not fold(plan, state, *taken, at, written_at, self.now)
            encoded = msgspec.Raw(encode_state(plan, state))
        latest = at if before is None else max(at, before.as_of)
        self._staged[entity, feature.series] = Change(
            feature.series,
            feature.entity.name,
            entity_id,
            feature.codec.kind,
            Cell(msgspec.Raw(text), at, written_at, None, derived=False),
            self.cause,
            online=True,
            state=Cell(encoded, latest, written_at, None, derived=False),
        )
        return "late" if is_late else "done"

    async def add_to_history(self, change: Change) -> None:
        """Stage a row of history that is not a current value."""
        await self.cells(change.key)
        self._staged[self._state.entities[change.key], change.feature] = change

    def stage_document(self, write: DocumentWrite) -> None:
        """Stage a version of a document, in place of an earlier one of this run."""
        if not self._is_open:
            raise ClosedError(
                f"a handler wrote document {write.document!r} of index {write.index!r} after its "
                "run had ended; await the tasks that it starts"
            )
        if self._documents is None:
            self._documents = {}
        key = (write.index, write.document)
        self._documents.pop(key, None)  # the order is that of the last writes
        self._documents[key] = write

    def close(self) -> StagedChanges | None:
        """End the run; return its changes, or None if another run wrote to the same entity."""
        self._is_open = False
        seen = self._seen
        for entity, _ in self._staged:
            if entity.cells is not seen[entity]:
                self.lost = entity
                return None
        return self._staged

    def apply(self, staged: StagedChanges, feature: FeatureDef) -> None:
        """Let the writes of this run of a feature's handler, which has succeeded, count."""
        self._state.apply(staged, self._delivery)
        if self._documents is not None:
            self._state.documents += self._dated_documents(feature)
        if self._state.runs is not None:
            self._state.runs.append((self, feature))

    def _dated_documents(self, feature: FeatureDef) -> list[DocumentWrite]:
        is_ordered = feature.order == "event_time"
        return [
            replace(write, as_of=self._moment, is_ordered=is_ordered)
            for write in (self._documents or {}).values()
        ]

    def finished(
        self, feature: FeatureDef, keys: Mapping[LoadedEntity, EntityKey]
    ) -> tuple[tuple[str, str], FinishedRun]:
        """Return the run of a feature's handler, to count again in another batch."""
        seen = {keys[entity]: cells for entity, cells in self._seen.items()}
        changes = list(self._staged.values())
        run = FinishedRun(seen, changes, self._dated_documents(feature))
        return (self._delivery.position, feature.series), run
