"""A replay and its tasks, values that any process can be sent; each replays one file of events."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec.structs import replace

from headwater.core.clock import from_micros, to_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import text, texts
from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef, Order
from headwater.declarations.interceptors import Interceptors
from headwater.errors import BackfillRefusedError, HeadwaterError, ReplayWriteError
from headwater.features.batch_state import (
    BatchState,
    Contributed,
    HandlerTransaction,
    LoadedEntity,
    StagedChanges,
)
from headwater.features.cells import history_cell, make_cell, make_change
from headwater.features.event_handlers import EventHandlers, dead_letters
from headwater.features.services import Services
from headwater.history.backfill.commits import Commit, Commits, EntityProgress, ReplayedValue
from headwater.history.backfill.event_file import EventFile, StoredEvent
from headwater.history.backfill.past_values import PastValues
from headwater.model.backfills import ReplayReport
from headwater.model.values import Cell, Cells, EntityKey
from headwater.ports import Change, Delivery, DocumentWrite, EntityState, Point

_PROGRESS_SECONDS = 1.0
_READS = {
    "search": "it would find the documents of today",
    "retrieve": "it would find the documents of today",
    "assemble": "a context is about the present",
}


class StoreSource(Protocol):
    """A way for any process to open the store; it is pickled."""

    def open(self) -> AbstractAsyncContextManager[Services]:
        """Load the declarations and open the store in the running event loop."""


class ReplayJob(msgspec.Struct, frozen=True, kw_only=True):
    """A replay of stored events through the present handler of one feature.

    ``files`` are the files that `OfflineStore.export_events` wrote. All results are kept in
    ``folder``: running the same job again, after a crash or at the same time in another process,
    continues from there and gives the same result.
    """

    source: StoreSource
    feature: str
    series: str
    """The name that the new values are stored under."""
    definition: str = ""
    """A hash of the code of the feature; a process that has loaded other code is refused."""
    folder: Path
    files: Sequence[Path]
    order: Order = "stream"
    """The order of the feature, which decides of which time the value of a late event is."""
    since: datetime | None = None
    """With it, events whose values are of before it are left out: values start from those of the
    served version."""
    until: datetime | None = None
    """With it, events whose values are of it or later are left out, and of the new values of an
    entity only those are kept that are before the first one that it has in ``series``."""
    snapshot_seconds: float = 30.0
    """How often results are committed; a process that dies loses at most this much work."""


class ReplayTask(msgspec.Struct, frozen=True):
    """The replay of one file of events; repeating it continues after its last commit."""

    job: ReplayJob
    file: Path

    def __repr__(self) -> str:
        # The settings of the job have passwords, and errors name the task.
        return f"the replay of {self.file.name}"

    @property
    def inputs(self) -> Sequence[Path]:
        """The events."""
        return (self.file,)

    def run(self) -> ReplayReport:
        """Replay the events of the file, unless that is done, and return the counts."""
        _, last = self.commits().last()
        return last.report if last.is_last else asyncio.run(self._run())

    @property
    def events(self) -> EventFile:
        """The events to replay."""
        return EventFile(self.file, self.job.since, self.job.until, self.job.order)

    def commits(self) -> Commits:
        """Return the commits of this task."""
        return Commits(self.job.folder / self.file.stem)

    async def _run(self) -> ReplayReport:
        commits = self.commits()
        async with self.job.source.open() as services:
            feature = services.registry.feature(self.job.feature)
            if self.job.definition not in ("", definition_of(feature)):
                raise BackfillRefusedError(
                    feature.name,
                    "its code in the features file is not the code that the backfill began with; "
                    "put that back and continue, or run `headwater backfill cancel "
                    f"{feature.name}` first",
                )
            pruned = (await services.backends.catalog.load()).pruned.history
            while True:
                number, last = commits.last()
                if last.is_last:
                    return last.report
                # If another process was faster, continue after its commit.
                run = _TaskRun(services, self.job, commits, number, pruned)
                await run.replay(self.events)


class _TaskRun:
    """A run of a task, from one commit until the end or until another process has committed."""

    def __init__(
        self,
        services: Services,
        job: ReplayJob,
        commits: Commits,
        number: int,
        pruned: datetime | None,
    ) -> None:
        registry = services.registry
        definition = replace(registry.feature(job.feature), series=job.series)
        self._services = services
        self._job = job
        self._commits = commits
        self._number = number
        self._definition = definition
        self._served = registry.feature(job.feature).series
        past = PastValues(services.backends.offline, registry, definition, pruned)
        self._state = ReplayState(definition, past)
        self._handlers = EventHandlers(replace(services, interceptors=Interceptors()))
        last = commits.last()[1]
        self._report = last.report
        self._state.unstored = Counter(last.report.unstored)
        self._written: dict[str, int] = {}
        """When the last value of each entity was written, as history will have it."""
        for entity_id, progress in commits.entities(last).items():
            self._enter(entity_id, progress.cell, progress.written_at)
        self._first: dict[str, int] = {}
        """When the first value of each entity is from, if values are added before it."""
        self._bucket = -1
        self._values = commits.new_file("values")
        self._failures = commits.new_file("failures")

    def _enter(self, entity_id: str, cell: Cell | None, written_at: int = 0) -> None:
        cells = {} if cell is None else {self._definition.series: cell}
        key = (self._definition.entity.name, entity_id)
        self._state.entities[key] = LoadedEntity(EntityState(0, cells))
        self._written[entity_id] = written_at

    async def replay(self, events: EventFile) -> None:
        """Replay the events after the last commit."""
        with ExitStack() as unfinished:
            unfinished.callback(lambda: self._values.discard())
            unfinished.callback(lambda: self._failures.discard())
            pages = unfinished.enter_context(
                events.reading(self._commits.folder, self._report.events)
            )
            committed = shown = time.monotonic()
            for page in pages:
                await self._run_page(page)
                now = time.monotonic()
                if now - shown >= _PROGRESS_SECONDS:
                    self._commits.show_progress(self._report.events)
                    shown = now
                if now - committed >= self._job.snapshot_seconds:
                    if not self._commit(is_last=False):
                        return
                    committed = now
            self._commit(is_last=True)

    async def _run_page(self, page: list[StoredEvent]) -> None:
        self._leave_buckets_before(page[0].event.entity_id)
        chains: dict[str, list[StoredEvent]] = {}
        for stored in page:
            chains.setdefault(stored.event.entity_id, []).append(stored)
        await self._load([entity_id for entity_id in chains if entity_id not in self._written])
        moments = [to_micros(stored.event.timestamp) for stored in page]
        entity, entities = self._definition.entity.name, self._state.entities
        for entity_id in chains:
            moments += [cell.as_of for cell in entities[entity, entity_id].cells.values()]
        self._state.past.begin_page(page, moments)
        limit = self._services.settings.worker.concurrency
        await run_concurrently(list(chains.values()), self._handle, limit)
        if self._state.refusal is not None:
            raise self._state.refusal
        values = self._new_values(self._state.changes, self._services.clock.micros())
        self._state.changes = []
        if values:
            self._values.write(values)
        self._report = ReplayReport(
            self._report.events + len(page),
            self._report.values + len(values),
            self._report.failures,
            dict(self._state.unstored),
        )

    async def _handle(self, chains: Iterator[list[StoredEvent]]) -> None:
        """Handle chains of events until none is left."""
        handlers, state, features = self._handlers, self._state, (self._definition,)
        with self._services.feature_calls.deadline.slot() as slot:
            for stored in chain.from_iterable(chains):
                handled = await handlers.handle(state, stored, features, slot)
                if handled.failures:
                    now = self._services.clock.now()
                    self._failures.write(dead_letters(stored, 0, handled.failures, now))
                    self._report = replace(self._report, failures=self._report.failures + 1)

    def _leave_buckets_before(self, entity_id: str) -> None:
        """Forget the entities of the buckets whose events are done."""
        bucket, before = bucket_of(entity_id), self._bucket
        self._bucket = bucket
        if bucket == before:
            return
        for entity, entity_id in list(self._state.entities):
            if bucket_of(entity_id) != bucket:
                del self._state.entities[entity, entity_id]
                self._written.pop(entity_id, None)
                self._first.pop(entity_id, None)

    async def _load(self, entity_ids: Sequence[str]) -> None:
        """Load the values that entities start from, and the first ones that they have."""
        cells: Mapping[str, Cell] = {}
        if self._job.since is not None and entity_ids:
            before = self._job.since - timedelta(microseconds=1)
            points = [Point(entity_id, before) for entity_id in entity_ids]
            rows = await self._services.backends.offline.as_of([self._served], points)
            cells = {
                entity_id: history_cell(self._definition, past)
                for entity_id, (past,) in zip(entity_ids, rows, strict=True)
                if past is not None
            }
        for entity_id in entity_ids:
            cell = cells.get(entity_id)
            self._enter(entity_id, cell, 0 if cell is None else cell.written_at)
        if self._job.until is not None and entity_ids:
            sql = (
                "SELECT entity_id, min(as_of) AS first FROM feature_history"
                f" WHERE feature = {text(self._job.series)}"
                f" AND entity_id IN ({texts(entity_ids)}) GROUP BY entity_id"
            )
            answer = await self._services.backends.offline.query(sql, {})
            self._first |= {entity_id: to_micros(first) for entity_id, first in answer.rows}

    def _new_values(self, changes: Sequence[Change], now: int) -> list[ReplayedValue]:
        """Return the new values as history will have them: written now, those of ties in order."""
        values = []
        for change in changes:
            entity_id, cell = change.entity_id, change.cell
            first = self._first.get(entity_id)
            if first is not None and cell.as_of >= first:
                continue
            # Of two values of one moment the later write counts.
            written_at = self._written[entity_id] = max(now, self._written[entity_id] + 1)
            cell = Cell(cell.value, cell.as_of, written_at, cell.expires_at)
            values.append(ReplayedValue(entity_id, cell, change.cause, change.online))
        return values

    def _commit(self, *, is_last: bool) -> bool:
        """Commit the results; return False if another process has committed this step."""
        commits, state = self._commits, self._commits.new_file("state")
        if not is_last:
            entity, series = self._definition.entity.name, self._definition.series
            entities = self._state.entities
            state.write(
                {
                    entity_id: EntityProgress(
                        entities[entity, entity_id].cells.get(series), written
                    )
                    for entity_id, written in self._written.items()
                }
            )
        commit = Commit(
            report=self._report,
            values=self._values.finish(),
            failures=self._failures.finish(),
            state=state.finish(),
            is_last=is_last,
        )
        is_first = commits.add(self._number, commit)
        self._number += 1
        self._values, self._failures = commits.new_file("values"), commits.new_file("failures")
        return is_first


class ReplayState(BatchState):
    """The entities of a replay, with the values of one feature and no others."""

    def __init__(self, definition: FeatureDef, past: PastValues) -> None:
        super().__init__()
        self.definition = definition
        self.past = past
        self.unstored: Counter[str] = Counter()
        self.refusal: HeadwaterError | None = None
        """The first thing that handlers did and that cannot be replayed."""

    def begin(self, delivery: Delivery, moment: int, now: int) -> HandlerTransaction:
        """Return the transaction of one run of a handler, at the time of its event."""
        assert isinstance(delivery, StoredEvent)
        return ReplayTransaction(self, delivery, moment)

    def apply(self, staged: StagedChanges, delivery: Delivery) -> None:
        """Keep the new values of the replayed feature; count those of other features."""
        for (entity, _), change in staged.items():
            if change.feature != self.definition.series:
                self.unstored[change.feature] += 1
                continue
            if change.online:
                entity.cells = {change.feature: change.cell}
            self.changes.append(change)

    def refuse(self, error: HeadwaterError) -> HeadwaterError:
        """Return an error that also ends the replay, if handlers catch it."""
        self.refusal = self.refusal or error
        return error


class ReplayTransaction(HandlerTransaction):
    """One run of the handler of a past event."""

    __slots__ = ("_about", "_event", "_replay")

    is_past = True

    def __init__(self, state: ReplayState, stored: StoredEvent, moment: int) -> None:
        # Now is when the event was accepted: values expire as they would have.
        super().__init__(state, moment, stored.received_at, stored)
        self._replay = state
        self._event = stored
        own = self.loaded(self._own_key).get(state.definition.series)
        is_stream = state.definition.order == "stream"
        self._about = max(moment, own.as_of) if own is not None and is_stream else moment

    @property
    def _own_key(self) -> EntityKey:
        return (self._replay.definition.entity.name, self._event.event.entity_id)

    def cell(self, key: EntityKey, feature: FeatureDef) -> Cell | None:
        """Return a value that is in memory; raise KeyError if it has to be loaded."""
        own = self._replay.definition
        if feature.windows is not None:
            raise self._refused(
                f"its handler reads windows of {feature.name!r}, and what they were when an event "
                "was handled is not known; keep the value in a feature, or read the windows where "
                "this feature is read"
            )
        if feature.name == own.name:
            if key != self._own_key:
                raise KeyError(key)
            return self.loaded(key).get(own.series)
        if self._staged and key in self._replay.entities:
            written = self.loaded(key).get(feature.series)
            if written is not None:
                return written
        past = self._replay.past
        if past.is_pruned(self._about):
            moment = from_micros(self._about).isoformat()
            raise self._refused(
                f"its handler reads {feature.name!r} of {moment}, and "
                f"history before {past.pruned} was pruned; run it with --since and a later time"
            )
        return past.value(feature, key[1], self._event, self._about)

    async def get(
        self, entity: str, entity_ids: Sequence[str], features: Sequence[FeatureDef]
    ) -> list[Cells]:
        """Return features of entities as of the moment that the new value is about."""
        pages: list[Cells] = []
        for entity_id in entity_ids:
            key, cells = (entity, entity_id), {}
            for feature in features:
                try:
                    cell = self.cell(key, feature)
                except KeyError:
                    await self._load(key, feature)
                    cell = self.cell(key, feature)
                if cell is not None:
                    cells[feature.series] = cell
            pages.append(cells)
        return pages

    async def _load(self, key: EntityKey, feature: FeatureDef) -> None:
        own = self._replay.definition
        if feature.name == own.name:
            raise self._refused(
                f"its handler reads the feature of another {own.entity.name} ({key[1]!r}), whose "
                "events are replayed independently; keep that value in another feature"
            )
        await self._replay.past.load(feature, key[1], self._about)

    def stage(self, feature: FeatureDef, entity_id: str, value: object) -> None:
        """Stage a value; one of another feature is seen by this run only."""
        own = self._replay.definition
        if feature.name == own.name:
            if entity_id != self._event.event.entity_id:
                raise self._refused(
                    f"its handler sets the feature of another {own.entity.name} ({entity_id!r}), "
                    "whose events are replayed independently; publish an event for that one"
                )
            feature = own
        super().stage(feature, entity_id, value)

    def contribute(
        self,
        feature: FeatureDef,
        entity_id: str,
        value: object,
        made_again: Cell | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> Contributed:
        """Stage a contribution for history only, of which states are made at the end."""
        self._check_open(feature)
        entity = self._state.entities[feature.entity.name, entity_id]
        self._seen.setdefault(entity, entity.cells)
        cell = make_cell(feature, value, self._moment, self.now)
        self._staged[entity, feature.series] = make_change(feature, entity_id, cell, self.cause)
        return "done"

    async def add_to_history(self, change: Change) -> None:
        """Do nothing: values computed in a replay were never served."""

    def stage_document(self, write: DocumentWrite) -> None:
        """Count a document; it is not written, because its index has later versions."""
        self._replay.unstored[f"documents of {write.index}"] += 1

    def check_allowed(self, verb: str) -> None:
        """Raise an error for verbs that change anything, or that read the present."""
        definition = self._replay.definition
        if verb in _READS:
            self.refuse_read(verb)
        if verb != "set_feature" and not definition.repeatable:
            remedy = (
                f"declare feature {definition.name!r} with repeatable=True if its handler may do "
                "it again for every past event"
            )
            raise self._replay.refuse(ReplayWriteError(verb, remedy))

    def refuse_read(self, verb: str) -> None:
        """Raise an error for a verb that reads the present."""
        reason = _READS.get(verb, "it would read what is stored today")
        raise self._refused(f"its handler calls {verb}, and {reason}")

    def is_computable(self, feature: FeatureDef) -> bool:
        """Raise an error unless the function depends on features only, which are of the past."""
        if not feature.derived:
            raise self._refused(
                f"its handler reads {feature.name!r}, which is computed at every read and may "
                "depend on the present; declare that one with derived=True if it depends on "
                "nothing but features"
            )
        return True

    def _refused(self, problem: str) -> HeadwaterError:
        return self._replay.refuse(BackfillRefusedError(self._replay.definition.name, problem))
