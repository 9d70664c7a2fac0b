"""A history in which some series are computed: stored events, replayed in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial

import msgspec
from msgspec.structs import replace

from headwater.contexts.evaluation.entity_replay import (
    END,
    EntityLog,
    EvaluationTransaction,
    ReplayedState,
    ReplayStep,
    earlier_values,
    real_cell,
)
from headwater.contexts.evaluation.lookups import Lookups, ReadOnlyHistory, between
from headwater.core.clock import from_micros, to_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.deadlines import Slot
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Interceptors
from headwater.errors import BackendUnavailableError, FeatureValueError, HeadwaterError
from headwater.features.cells import history_cell
from headwater.features.event_handlers import EventHandlers
from headwater.features.services import Services
from headwater.features.window_states import WindowStates
from headwater.model.values import REDRIVE, Cell, Cells, original_id
from headwater.ports import HistoryRow, OfflineStore, PastValue, Point
from headwater.windows.state import covers, decode_state

_ALL_ROWS = 2**31 - 1
_UNREADABLE = msgspec.Raw(b'["unreadable"]')
_LATE = "it is not known when a live worker handled an event"
_TIED = "it read another entity while an event of that one was handled"
_REDRIVEN = "an event that was redriven later does not fail with this code"
_ELSEWHERE = "a handler of another entity set it, and the order of the two is not known"
_MISFIT = "a value that was set does not fit its type"

Input = tuple[str, str]
"""A feature and an entity id."""


class ReplayedHistory(ReadOnlyHistory):
    """History with the values that other code would have written, had it been live.

    The events of an entity id run through the replayed features as a worker runs them: in the order
    of the log, each at the moment at which a live worker handled it, the features in the order of
    declaration. Nothing is stored, and every other series is that of the real history.

    - A value of a replayed feature that no event of the entity id caused, such as one that was set,
      imported or caused by an event that was pruned since, stays as it is in real history.
    - An event that fails leaves the values as they were. If it was redriven in the live world, its
      handler runs again at that moment; a redrive of an event that succeeds here is ignored.
    - Events and values of before an erasure do not count, as in a worker.
    - A value is known from the moment on at which its event was handled, also if its ``written_at``
      is some microseconds later, because the one before it was written at the same moment.

    >>> history = ReplayedHistory(engine, [churn_risk], {"churn_risk": former})
    >>> history.bind(variant_engine)  # its backends.offline is the history
    >>> await history.preload({"User": ["u1"]}, until)
    """

    def __init__(
        self,
        services: Services,
        replayed: Sequence[FeatureDef],
        former: Mapping[str, FeatureDef],
    ) -> None:
        super().__init__(services.backends.offline)
        self._services = services
        self._former = former
        self.replayed: Mapping[str, FeatureDef] = {one.series: one for one in replayed}
        self._triggered: dict[str, list[FeatureDef]] = {}
        for feature in replayed:
            for event_type in feature.triggers:
                self._triggered.setdefault(event_type, []).append(feature)
        self.order: Mapping[str, int] = {}
        self._lookups = Lookups(services.backends.offline)
        self._bound = services
        self._loading = asyncio.Lock()
        self._limit = services.settings.worker.concurrency
        self.release()

    def bind(self, services: Services) -> None:
        """Run the handlers in the engine whose history this is."""
        self._bound = services
        self.order = {name: place for place, name in enumerate(services.registry.features)}
        # Made of what is replayed so far: a handler must not wait for its own entity.
        so_far = Contributions(self._real, self._so_far)
        self._contributed = replace(services.backends, offline=so_far)
        self._states = WindowStates(self._contributed)
        self._handlers = EventHandlers(
            replace(services, backends=self._contributed, interceptors=Interceptors())
        )

    def release(self) -> None:
        """Forget all entities."""
        ledger = self._services.backends.erasures.ledger
        self._logs: dict[str, EntityLog] = {}
        self._state = ReplayedState(ledger=ledger)
        self._awaited: dict[str, None] = {}
        self._waiting: dict[str, list[str]] = {}
        self._inputs: dict[Input, set[Input]] = {}
        self._set: set[str] = set()
        """Series that are not replayed, and that handlers have set."""
        self._until = END

    async def preload(self, entities: Mapping[str, Collection[str]], until: datetime) -> None:
        """Replay the events of entities up to a moment, with few reads of the real history."""
        self._until = to_micros(until)
        ids = dict.fromkeys(entity_id for of_kind in entities.values() for entity_id in of_kind)
        await self.reach(list(ids), self._until)

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool = False
    ) -> list[list[PastValue | None]]:
        """Return the values of features as `OfflineStore.as_of` does."""
        in_memory = {series for series in features if series in self.replayed}
        if in_memory and points:
            latest = max(to_micros(point.at) for point in points) if known else self._until
            await self.reach(list(dict.fromkeys(point.entity_id for point in points)), latest)
        others = [series for series in features if series not in in_memory]
        real = await self._lookups.as_of(others, points, known=known)
        grid: list[list[PastValue | None]] = []
        for point, row in zip(points, real, strict=True):
            values = dict(zip(others, row, strict=True))
            for series in in_memory | (self._set & values.keys()):
                value = self._value(series, point, known=known)
                before = values.get(series)
                if before is None or (value and value.as_of >= before.as_of):
                    values[series] = value
            grid.append([values[series] for series in features])
        return grid

    def _value(self, series: str, point: Point, *, known: bool) -> PastValue | None:
        log, moment = self._logs.get(point.entity_id), to_micros(point.at)
        timeline = None if log is None else log.values.get(series)
        if timeline is None:
            return None
        cell = timeline.known(moment) if known else timeline.true(moment)
        if cell is None:
            return None
        return PastValue(bytes(cell.value), from_micros(cell.as_of), from_micros(cell.written_at))

    async def rows(
        self,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        """Return the rows of a series as `OfflineStore.rows` does."""
        if series not in self.replayed:
            return await self._lookups.rows(series, entity_ids, start=start, end=end, limit=limit)
        await self.reach(entity_ids, self._until)
        return [
            list(between(self._so_far(series, entity_id), start, end))[:limit]
            for entity_id in entity_ids
        ]

    def _so_far(self, series: str, entity_id: str) -> list[HistoryRow]:
        log = self._logs.get(entity_id)
        timeline = None if log is None else log.values.get(series)
        return [] if timeline is None else timeline.history()

    def notes(self, feature: str, entity_id: str, moment: datetime | None = None) -> Sequence[str]:
        """Return why values of a replayed feature are approximate, at a moment if there is one."""
        at = None if moment is None else to_micros(moment)
        seen: dict[Input, None] = {(feature, entity_id): None}
        waiting = [(feature, entity_id)]
        texts: dict[str, None] = {}
        while waiting:
            name, of_id = waiting.pop()
            log = self._logs.get(of_id)
            for note in log.notes.get(name, ()) if log else ():
                if at is None or note.since <= at < note.until:
                    texts[f"{name} of {of_id}: {note.text}"] = None
            more = [one for one in self._inputs.get((name, of_id), ()) if one not in seen]
            seen.update(dict.fromkeys(more))
            waiting += more
        return list(texts)

    def error_of(self, feature: str, entity_id: str) -> str:
        """Return the first error of the handler of a feature for an entity id; empty for none."""
        log = self._logs.get(entity_id)
        return "" if log is None else log.errors.get(feature, "")

    def failed_at(self, feature: str, entity_id: str, moment: datetime) -> bool:
        """Return whether the feature had a dead letter of the entity id at a moment."""
        log, at = self._logs.get(entity_id), to_micros(moment)
        spans = () if log is None else log.failures.get(feature, {}).values()
        return any(since <= at < until for since, until in spans)

    def track_input(self, reader: Input, read: Input) -> None:
        """Note that values of a feature depend on those of another one."""
        self._inputs.setdefault(reader, set()).add(read)

    async def reach(
        self, entity_ids: Sequence[str], until: int, by: EntityLog | None = None
    ) -> None:
        """Replay the events that were handled up to a moment, for a reader or another entity id."""
        if any(entity_id not in self._logs for entity_id in entity_ids):
            await self._load(entity_ids)
        behind = [
            log
            for entity_id in entity_ids
            if (log := self._logs[entity_id]).is_behind(until)
            and (by is None or not self._is_awaited_by(by.entity_id, entity_id))
        ]
        if not behind:
            return
        awaiting = [] if by is None else self._waiting.setdefault(by.entity_id, [])
        awaiting += [log.entity_id for log in behind]
        try:
            await run_concurrently(behind, partial(self._take, until), self._limit)
        finally:
            for log in behind:
                awaiting.remove(log.entity_id)

    def _is_awaited_by(self, entity_id: str, by: str) -> bool:
        """Return whether an entity id waits for another, perhaps because of others between."""
        seen, waiting = {by}, [by]
        while waiting:
            for one in self._waiting.get(waiting.pop(), ()):
                if one == entity_id:
                    return True
                if one not in seen:
                    seen.add(one)
                    waiting.append(one)
        return False

    async def _take(self, until: int, logs: Iterator[EntityLog]) -> None:
        with self._bound.feature_calls.deadline.slot() as slot:
            for log in logs:
                async with log.lock:
                    while log.is_behind(until):
                        await self._run(log, log.steps[log.next], slot)
                        log.next += 1

    async def _run(self, log: EntityLog, step: ReplayStep, slot: Slot) -> None:
        if step.past is None:
            self._write(log, step)
            return
        if step.is_redrive:
            (feature,) = step.features
            dead = log.failures.get(feature.name, {})
            place = log.places[step.past.event.event_id]
            if place not in dead:
                log.note(feature.name, _REDRIVEN, log.handled[place].moment)
            elif await self._succeeds(log, step, feature, slot):
                dead[place] = (dead[place][0], step.moment)
            return
        ledger, registry = self._services.backends.erasures.ledger, self._bound.registry
        if ledger.voiding(step.past.event, registry.subjects, step.past.position) is not None:
            return
        for feature in step.features:
            if not await self._succeeds(log, step, feature, slot):
                spans = log.failures.setdefault(feature.name, {})
                spans[step.place] = (step.moment, END)

    async def _succeeds(
        self, log: EntityLog, step: ReplayStep, feature: FeatureDef, slot: Slot
    ) -> bool:
        """Run a handler and keep its values; return False if it fails, without a retry."""
        assert step.past is not None, "only events run handlers"
        transaction = EvaluationTransaction(self, self._state, log, step, feature)
        try:
            await self._handlers.run(transaction, feature, step.past.event, slot)
        except BackendUnavailableError:
            raise
        except HeadwaterError as error:
            log.errors.setdefault(feature.name, str(error))
            return False
        finally:
            staged = transaction.close()
        transaction.apply(staged, feature)
        for change in self._state.take_changes():
            log.add(change.feature, step.moment, change.cell, change.cause)
            if change.feature not in self.replayed:
                self._set.add(change.feature)
        for feature, entity_id, cell in transaction.elsewhere:
            self._write_elsewhere(feature, entity_id, cell, transaction)
        return True

    def _write_elsewhere(
        self, feature: FeatureDef, entity_id: str, cell: Cell, transaction: EvaluationTransaction
    ) -> None:
        """Add a value that the handler of another entity id has set."""
        log = self._logs.get(entity_id)
        if log is not None:
            log.note(feature.name, _ELSEWHERE, transaction.now)
            log.add(feature.series, transaction.now, cell, transaction.cause)
            self._state.set((feature.entity.name, entity_id), feature.series, cell)
            if feature.series not in self.replayed:
                self._set.add(feature.series)

    def _write(self, log: EntityLog, step: ReplayStep) -> None:
        """Add a value that no event of the entity id caused."""
        (feature,), cell = step.features, step.cell
        assert cell is not None, "a step without an event is a write"
        log.add(feature.series, step.moment, cell, step.cause)
        if feature.windows is not None:
            # The state is made of all contributions when the next one is folded into it.
            cell = Cell(_UNREADABLE, cell.as_of, cell.written_at, None, derived=False)
        self._state.set((feature.entity.name, log.entity_id), feature.series, cell)

    async def _load(self, entity_ids: Iterable[str]) -> None:
        """Load entity ids, together with ids that others wait for."""
        self._awaited |= dict.fromkeys(entity_ids)
        async with self._loading:
            ids = [entity_id for entity_id in self._awaited if entity_id not in self._logs]
            self._awaited = {}
            if not ids:
                return
            features = [*self._bound.registry.features.values(), *self._former.values()]
            features += self._services.registry.features.values()
            types = {event_type for feature in features for event_type in feature.triggers}
            versions = self._services.catalog.state.versions()
            series = {version.series for version in versions}
            series |= {one for feature in self._former.values() for one, _ in feature.chain}
            events = await self._real.events_of(ids, types | self._triggered.keys(), series)
            logs = {
                entity_id: EntityLog(entity_id, own)
                for entity_id, own in zip(ids, events, strict=True)
            }
            for log in logs.values():
                self._add_events(log)
            for feature in self.replayed.values():
                former = self._former.get(feature.name)
                for one, is_converted in () if former is None else former.chain:
                    pages = await self._real.rows(one, ids, limit=_ALL_ROWS)
                    for log, page in zip(logs.values(), pages, strict=True):
                        self._add_writes(log, feature, page, is_converted=is_converted)
            for log in logs.values():
                self._note_pruned(log)
                log.steps.sort(key=lambda step: (step.place, step.is_of_log, step.moment))
            self._logs |= logs

    def _add_events(self, log: EntityLog) -> None:
        for place, (past, handled) in enumerate(zip(log.events, log.handled, strict=True)):
            features = self._triggered.get(past.event.event_type, ())
            if features:
                log.steps.append(ReplayStep(handled.moment, place, features, past))
            if handled.latest > handled.moment:
                for feature in features:
                    log.note(feature.name, _LATE, handled.moment, handled.latest)

    def _note_pruned(self, log: EntityLog) -> None:
        """Note that events of an entity id were pruned, unless it is known to have had none."""
        state = self._services.catalog.state
        horizon, began = state.pruned.events, state.worked_since
        if horizon is None or (began is not None and began >= horizon):
            return
        if log.first_written == END or log.first_written < to_micros(horizon):
            for feature in self.replayed.values():
                log.note(feature.name, f"events before {horizon.isoformat()} were pruned")

    def _add_writes(
        self, log: EntityLog, feature: FeatureDef, rows: Sequence[HistoryRow], *, is_converted: bool
    ) -> None:
        """Add the values of a feature in real history that no event of the entity id caused."""
        tombstone = self._services.backends.erasures.ledger.find(feature.entity.name, log.entity_id)
        for row in rows:
            cell = real_cell(feature, row)
            log.first_written = min(log.first_written, cell.written_at)
            if row.cause in log.places:
                continue
            if tombstone is not None and not tombstone.admits(cell):
                continue
            place = log.place_of(cell.written_at)
            moment = log.moment_of(place, cell.written_at)
            event = log.places.get(original_id(row.cause)) if _is_redrive(row) else None
            if event is not None:
                past = log.events[event]
                if past.event.event_type in feature.triggers:
                    log.steps.append(ReplayStep(moment, place, (feature,), past, is_redrive=True))
                continue
            fitting = _fitting(feature, row.value, is_converted=is_converted)
            if fitting is None:
                log.note(feature.name, _MISFIT, moment)
                continue
            cell = replace(cell, value=msgspec.Raw(fitting))
            log.steps.append(ReplayStep(moment, place, (feature,), cell=cell, cause=row.cause))

    async def load_real(self, feature: FeatureDef) -> None:
        """Load the real values of a feature for the entity ids in memory."""
        async with self._loading:
            logs = [log for log in self._logs.values() if feature.series not in log.real]
            # Behind the interceptors, which convert values of earlier types.
            pages = await self._bound.backends.offline.rows(
                feature.series, [log.entity_id for log in logs], limit=_ALL_ROWS
            )
            ledger = self._services.backends.erasures.ledger
            for log, page in zip(logs, pages, strict=True):
                tombstone = ledger.find(feature.entity.name, log.entity_id)
                cells = [(real_cell(feature, row), row.cause) for row in reversed(page)]
                if tombstone is not None:
                    cells = [pair for pair in cells if tombstone.admits(pair[0])]
                log.real[feature.series] = earlier_values(log, feature, self.order, cells)

    async def others(
        self,
        own: EntityLog,
        moment: int,
        entity_ids: Sequence[str],
        features: Sequence[FeatureDef],
        reader: str,
    ) -> list[Cells]:
        """Return what features of other entity ids were at a moment."""
        replayed = [feature for feature in features if feature.series in self.replayed]
        if replayed:
            await self.reach(entity_ids, moment, own)
            if any(self._logs[entity_id].is_busy(moment) for entity_id in entity_ids):
                own.note(reader, _TIED, moment)
        cells: list[dict[str, Cell]] = [{} for _ in entity_ids]
        real = [f for f in features if f.windows is None and f.series not in self.replayed]
        points = [Point(entity_id, from_micros(moment)) for entity_id in entity_ids]
        grid = await self._bound.backends.offline.as_of(
            [f.series for f in real], points, known=True
        )
        for held, row in zip(cells, grid, strict=True):
            pasts = zip(real, row, strict=True)
            held |= {f.series: history_cell(f, past) for f, past in pasts if past is not None}
        for feature in replayed:
            for entity_id, held in zip(entity_ids, cells, strict=True):
                log = self._logs[entity_id]
                if log.is_approximate(feature.name, moment):
                    own.note(reader, f"it read {feature.name} of {entity_id}", moment)
                cell = log.known(feature.series, moment)
                if cell is not None and feature.windows is None:
                    held[feature.series] = cell
        for family in features:
            if family.windows is not None:
                is_replayed = family.series in self.replayed
                states = self._states if is_replayed else WindowStates(self._services.backends)
                made = await states.made_again(family, entity_ids, moment, moment)
                for entity_id, held in zip(entity_ids, cells, strict=True):
                    held |= {family.series: state} if (state := made[entity_id]) else {}
        return list(cells)

    async def windows(
        self,
        own: EntityLog,
        family: FeatureDef,
        state: Cell | None,
        moment: int,
        place: tuple[int, int],
    ) -> Cell | None:
        """Return a readable state of a family of the own entity id at a moment."""
        states, windows = self._states, family.windows
        assert windows is not None, "only families have windows"
        if family.series in self.replayed:
            decoded = None if state is None else decode_state(windows.plan, state.value)
            if state is None or (decoded and covers(windows.plan, decoded, moment)):
                return state
        else:
            rows = own.real[family.series].history(place)
            earlier = Contributions(self._real, lambda _series, _id: rows)
            states = WindowStates(replace(self._contributed, offline=earlier))
        return (await states.made_again(family, [own.entity_id], moment))[own.entity_id]


class Contributions(ReadOnlyHistory):
    """A history whose rows are in memory."""

    def __init__(
        self, real: OfflineStore, rows: Callable[[str, str], Sequence[HistoryRow]]
    ) -> None:
        super().__init__(real)
        self.as_of = real.as_of
        self._rows = rows

    async def rows(
        self,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        """Return the rows of a series as `OfflineStore.rows` does."""
        return [
            list(between(self._rows(series, entity_id), start, end))[:limit]
            for entity_id in entity_ids
        ]


def _is_redrive(row: HistoryRow) -> bool:
    return row.cause.startswith(REDRIVE)


def _fitting(feature: FeatureDef, value: bytes, *, is_converted: bool) -> bytes | None:
    """Return a value of real history as the feature stores it; None if it does not fit."""
    if not is_converted and feature.codec.fits(value):
        return value
    try:
        return feature.codec.converted(value)
    except FeatureValueError:
        return None
