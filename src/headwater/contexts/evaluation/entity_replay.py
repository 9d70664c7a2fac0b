"""The replay of one entity id: its events in the order of the log, and the values they give."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.errors import InvalidInputError
from headwater.features.batch_state import (
    BatchState,
    HandlerTransaction,
    LoadedEntity,
    StagedChanges,
)
from headwater.features.cells import make_cell
from headwater.model.values import Cell, Cells, EntityKey, ServiceEvent
from headwater.ports import Change, DocumentWrite, EntityState, HistoryRow, PastEvent

BEGINNING, END = -(2**62), 2**62
_ALLOWED = frozenset({"publish", "set_feature", "index", "unindex"})
K = TypeVar("K", int, tuple[int, int])


class Timeline(Generic[K]):
    """The values of one series, in the order in which they became visible.

    The last value is the one that `OfflineStore.as_of` gives: of the latest ``as_of`` and, among
    those of one moment, the one written last.
    """

    __slots__ = ("_history", "_last", "_visible", "rows")

    def __init__(self) -> None:
        self._visible: list[K] = []
        self._last: list[Cell] = []
        self._history: list[HistoryRow] | None = None
        self.rows: list[tuple[Cell, str]] = []
        """Values and their causes."""

    def add(self, visible: K, cell: Cell, cause: str) -> None:
        """Add a value, nearly always the latest one to become visible."""
        self._history = None
        place = bisect_right(self._visible, visible)
        self._visible.insert(place, visible)
        self.rows.insert(place, (cell, cause))
        del self._last[place:]
        for later, _ in self.rows[place:]:
            before = self._last[-1] if self._last else later
            self._last.append(later if _rank(later) >= _rank(before) else before)

    def known(self, moment: K) -> Cell | None:
        """Return the last of the values that are visible at a moment."""
        place = bisect_right(self._visible, moment)
        return self._last[place - 1] if place else None

    def true(self, moment: int) -> Cell | None:
        """Return the last of the values that are of a moment or earlier, whenever written."""
        cells = [cell for cell, _ in self.rows if cell.as_of <= moment]
        return max(reversed(cells), key=_rank, default=None)

    def history(self, until: K | None = None) -> list[HistoryRow]:
        """Return the values that are visible at a moment as rows of history, the newest first.

        Values that a stopped clock gave the same moment are dated up to it, and not from it on, so
        that all of them had been written at that moment.
        """
        if until is None and self._history is not None:
            return self._history
        dated: list[tuple[Cell, int, str]] = []
        following: int = END
        at: K | None = None
        count = len(self.rows) if until is None else bisect_right(self._visible, until)
        for place in range(count - 1, -1, -1):
            (cell, cause), visible = self.rows[place], self._visible[place]
            written_at = cell.written_at
            if isinstance(visible, int) and written_at > visible:
                written_at = visible
            written_at = min(written_at, following - 1 if at == visible else END)
            following, at = written_at, visible
            dated.append((cell, written_at, cause))
        dated.sort(key=lambda row: (row[0].as_of, row[1]), reverse=True)
        rows = [
            HistoryRow(bytes(cell.value), from_micros(cell.as_of), from_micros(written_at), cause)
            for cell, written_at, cause in dated
        ]
        self._history = rows if until is None else self._history
        return rows


def _rank(cell: Cell) -> tuple[int, int]:
    return cell.as_of, cell.written_at


class HandledEvent(NamedTuple):
    """When a live worker handled an event: at the earliest, which is assumed, and at the latest."""

    moment: int
    latest: int


def handled_moments(events: Sequence[PastEvent]) -> list[HandledEvent]:
    """Return when the events of an entity id were handled, one after the other.

    The first value that an event caused was written at that moment, or some microseconds later if
    it had to be written after another one. An event without values was handled after it had been
    accepted, between its neighbours.
    """
    bounds, bound = [], END
    for past in reversed(events):
        bound = bound if past.written_at is None else min(bound, past.written_at)
        bounds.append(bound)
    handled: list[HandledEvent] = []
    before, tied = BEGINNING, 0
    for past, bound in zip(events, reversed(bounds), strict=True):
        moment = bound if past.written_at is not None else max(past.received_at, before)
        moment = min(moment, bound)
        if before < moment <= before + tied:
            moment = before
        tied = tied + 1 if moment == before else 1
        is_exact = past.written_at is not None or bound <= moment + tied
        handled.append(HandledEvent(moment, moment if is_exact else bound))
        before = moment
    return handled


class ReplayStep(NamedTuple):
    """Something that changes values: an event, a redrive of one, or a write by something else."""

    moment: int
    place: int
    """The place of its event in the log of the entity id, or of the event that follows."""
    features: Sequence[FeatureDef]
    past: PastEvent | None = None
    is_redrive: bool = False
    cell: Cell | None = None
    cause: str = ""

    @property
    def is_of_log(self) -> bool:
        """Whether it is the event of its place, which everything else of that place precedes."""
        return self.past is not None and not self.is_redrive


class Note(NamedTuple):
    """Why values are approximate, from one moment until another."""

    since: int
    until: int
    text: str


class EntityLog:
    """An entity id in a replay: what happened to it, and the values of its features so far."""

    def __init__(self, entity_id: str, events: Sequence[PastEvent]) -> None:
        self.entity_id = entity_id
        self.events = events
        self.handled = handled_moments(events)
        self.places = {past.event.event_id: place for place, past in enumerate(events)}
        self._written = [
            handled.moment if past.written_at is None else past.written_at
            for past, handled in zip(events, self.handled, strict=True)
        ]
        for place in range(len(events) - 2, -1, -1):
            self._written[place] = min(self._written[place], self._written[place + 1])
        self.first_written = END
        """When the first value of a replayed feature was written in the live world."""
        self.steps: list[ReplayStep] = []
        self.next = 0
        self.lock = asyncio.Lock()
        self.values: dict[str, Timeline[int]] = {}
        """The values of each series that became visible in the replay."""
        self.real: dict[str, Timeline[tuple[int, int]]] = {}
        """The values of each series that is not replayed, by the places of their events."""
        self.failures: dict[str, dict[int, tuple[int, int]]] = {}
        """By feature and the place of an event: from when until when it was a dead letter."""
        self.errors: dict[str, str] = {}
        """The first error of the handler of each feature."""
        self.notes: dict[str, dict[Note, None]] = {}

    def place_of(self, written_at: int) -> int:
        """Return how many events were handled before something was written."""
        return bisect_right(self._written, written_at - 1)

    def moment_of(self, place: int, written_at: int) -> int:
        """Return from when on a write is visible that was made before an event was handled."""
        following = self.handled[place].moment if place < len(self.handled) else END
        return min(written_at, following)

    def is_behind(self, moment: int) -> bool:
        """Return whether a step up to a moment is not done."""
        return self.next < len(self.steps) and self.steps[self.next].moment <= moment

    def is_busy(self, moment: int) -> bool:
        """Return whether a step was done at a moment, or is not done although it was before."""
        place = bisect_right(self.steps, moment, key=attrgetter("moment"))
        return self.is_behind(moment) or (place > 0 and self.steps[place - 1].moment == moment)

    def add(self, series: str, moment: int, cell: Cell, cause: str) -> None:
        """Add a value that became visible at a moment."""
        self.values.setdefault(series, Timeline()).add(moment, cell, cause)

    def known(self, series: str, moment: int) -> Cell | None:
        """Return the value of a series that was visible at a moment."""
        timeline = self.values.get(series)
        return None if timeline is None else timeline.known(moment)

    def note(self, feature: str, text: str, since: int = BEGINNING, until: int = END) -> None:
        """Note why values of a feature are approximate."""
        self.notes.setdefault(feature, {})[Note(since, until, text)] = None

    def is_approximate(self, feature: str, moment: int) -> bool:
        """Return whether values of a feature are approximate at a moment."""
        return any(note.since <= moment < note.until for note in self.notes.get(feature, ()))


class ReplayedValues(Protocol):
    """What the handlers of past events read: the values of all entities."""

    replayed: Mapping[str, FeatureDef]
    """The replayed features by their series."""
    order: Mapping[str, int]
    """The place of each feature in the order of declaration."""

    async def load_real(self, feature: FeatureDef) -> None:
        """Load the real values of a feature for the entity ids in memory."""

    async def others(
        self,
        own: EntityLog,
        moment: int,
        entity_ids: Sequence[str],
        features: Sequence[FeatureDef],
        reader: str,
    ) -> list[Cells]:
        """Return what features of other entity ids were at a moment."""

    async def windows(
        self,
        own: EntityLog,
        family: FeatureDef,
        state: Cell | None,
        moment: int,
        place: tuple[int, int],
    ) -> Cell | None:
        """Return a readable state of a family of the own entity id at a moment."""

    def track_input(self, reader: tuple[str, str], read: tuple[str, str]) -> None:
        """Note that values of a feature depend on those of another one, each with its id."""


class ReplayedState(BatchState):
    """The values of replayed entities, with the writes of the handlers that have succeeded."""

    def entity(self, key: EntityKey) -> LoadedEntity:
        """Return an entity, which has no values at first."""
        entity = self.entities.get(key)
        if entity is None:
            entity = self.entities[key] = LoadedEntity(EntityState(0, {}))
        return entity

    def set(self, key: EntityKey, series: str, cell: Cell) -> None:
        """Make a value the current one, unless the entity has a later one."""
        entity = self.entity(key)
        before = entity.cells.get(series)
        if before is None or _rank(cell) >= _rank(before):
            entity.cells = {**entity.cells, series: cell}

    def take_changes(self) -> list[Change]:
        """Return the changes since the last call."""
        changes, self.changes = self.changes, []
        return changes


class EvaluationTransaction(HandlerTransaction):
    """One run of the handler of a past event, when a live worker handled it."""

    __slots__ = ("_feature", "_log", "_own", "_place", "_replay", "elsewhere", "published")

    is_past = True

    def __init__(
        self,
        replay: ReplayedValues,
        state: ReplayedState,
        log: EntityLog,
        step: ReplayStep,
        feature: FeatureDef,
    ) -> None:
        assert step.past is not None, "only events run handlers"
        moment = to_micros(step.past.event.timestamp)
        super().__init__(state, moment, step.moment, step.past)
        self.published: list[ServiceEvent] | None = []
        self.elsewhere: list[tuple[FeatureDef, str, Cell]] = []
        """Values of other entity ids that the handler has set."""
        self._own = state
        self._replay = replay
        self._log = log
        self._feature = feature
        # Of this event, the values of the features count that are declared before this one. A
        # redriven event was handled after all others of that time.
        place = replay.order.get(feature.name, 0) - 1
        self._place = (step.place, -1 if step.is_redrive else place)
        state.entity((feature.entity.name, log.entity_id))

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value of the own entity id that is in memory; raise KeyError for any other."""
        if key[1] != self._log.entity_id or feature.windows is not None:
            raise KeyError(key)
        self._own.entity(key)
        own = super().cell(key, feature)
        if feature.series in self._replay.replayed:
            if feature.name != self._feature.name:
                self._track(feature, key[1])
            return own
        real = self._log.real[feature.series].known(self._place)
        return own if real is None or (own and _rank(own) >= _rank(real)) else real

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return features of entities as they were when the event was handled."""
        own_id = self._log.entity_id
        others = [entity_id for entity_id in entity_ids if entity_id != own_id]
        cells = dict(zip(others, await self._others(others, features), strict=True))
        if own_id in entity_ids:
            cells[own_id] = await self._of_own((entity, own_id), features)
        return [cells[entity_id] for entity_id in entity_ids]

    async def _others(
        self, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        if not entity_ids:
            return []
        for feature in features:
            if feature.series in self._replay.replayed:
                for entity_id in entity_ids:
                    self._track(feature, entity_id)
        return await self._replay.others(
            self._log, self.now, entity_ids, features, self._feature.name
        )

    async def _of_own(self, key: EntityKey, features: Sequence[FeatureDef]) -> Cells:
        cells: dict[str, Cell] = {}
        for feature in features:
            is_replayed = feature.series in self._replay.replayed
            if not is_replayed and feature.series not in self._log.real:
                await self._replay.load_real(feature)
            if feature.windows is None:
                cell = self.cell(key, feature)
            else:
                self._own.entity(key)
                if is_replayed:
                    self._track(feature, key[1])
                state = super().cell(key, feature)
                cell = await self._replay.windows(self._log, feature, state, self.now, self._place)
            if cell is not None:
                cells[feature.series] = cell
        return cells

    def _track(self, feature: FeatureDef, entity_id: str) -> None:
        own = (self._feature.name, self._log.entity_id)
        self._replay.track_input(own, (feature.name, entity_id))

    async def set(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stage a value of the own entity id, or keep one of another for the end of the run."""
        key = (feature.entity.name, entity_id)
        if entity_id == self._log.entity_id:
            if feature.series not in self._replay.replayed:
                if feature.series not in self._log.real:
                    await self._replay.load_real(feature)
                real = self.cell(key, feature)
                if real is not None:
                    self._own.set(key, feature.series, real)
            self._own.entity(key)
            self.stage(feature, entity_id, value)
            return
        self._check_open(feature)
        cell = make_cell(feature, value, self._moment, self.now)
        self.elsewhere.append((feature, entity_id, cell))
        self._note(f"it sets {feature.name} of another {feature.entity.name}")

    def _note(self, text: str) -> None:
        self._log.note(self._feature.name, text, self.now)

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: values computed in a replay were never served."""

    def stage_document(self, write: DocumentWrite) -> None:
        """Drop a document: searches find the recorded versions."""
        self._note(f"documents that it writes to {write.index} are not replayed")

    def check_allowed(self, verb: str) -> None:
        """Refuse verbs other than those whose effects are dropped or staged."""
        if verb not in _ALLOWED:
            self.refuse_read(verb)

    def refuse_read(self, verb: str) -> None:
        """Raise an error for a verb whose result at that time is not known."""
        self._note(f"its handler calls {verb}, which cannot be repeated for past events")
        raise InvalidInputError(
            f"{verb} cannot be repeated in the handler of a past event; read features there, and "
            f"call {verb} in the context function"
        )

    def close(self) -> StagedChanges:
        """End the run; return its changes."""
        self._is_open = False
        return self._staged


def earlier_values(
    log: EntityLog, feature: FeatureDef, order: Mapping[str, int], cells: Collection[Any]
) -> Timeline[tuple[int, int]]:
    """Return real values of a feature, visible to the handlers of later events.

    ``cells`` are pairs of a cell and its cause. Those of an event of the entity id are visible to
    its features that are declared later, and to later events; others by the time of their writing.
    """
    timeline: Timeline[tuple[int, int]] = Timeline()
    for cell, cause in cells:
        place = log.places.get(cause)
        if place is None:
            timeline.add((log.place_of(cell.written_at), -1), cell, cause)
        else:
            timeline.add((place, order.get(feature.name, 0)), cell, cause)
    return timeline


def real_cell(feature: FeatureDef, row: HistoryRow) -> Cell:
    """Return a row of history as a cell that expires as the feature declares."""
    written_at = to_micros(row.written_at)
    return Cell(
        msgspec.Raw(row.value),
        to_micros(row.as_of),
        written_at,
        feature.expiry_of(written_at),
        not feature.stored,
    )
