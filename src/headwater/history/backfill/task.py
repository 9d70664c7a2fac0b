"""One task of a replay: the events of one file, through the present handler."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import chain
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headwater.core.clock import to_micros
from headwater.core.concurrency import run_concurrently
from headwater.core.partitioning import bucket_of
from headwater.core.sql_literals import text, texts
from headwater.declarations.definitions import definition_of
from headwater.declarations.features import FeatureDef
from headwater.errors import BackfillRefusedError
from headwater.features.batch_state import LoadedEntity
from headwater.features.cells import history_cell
from headwater.features.event_handlers import EventHandlers, dead_letters
from headwater.features.services import Services
from headwater.history.backfill.commits import (
    Commit,
    Commits,
    EntityProgress,
    ReplayedValue,
)
from headwater.history.backfill.event_file import EventFile, StoredEvent
from headwater.history.backfill.job import ReplayJob
from headwater.history.backfill.past_values import PastValues
from headwater.history.backfill.state import ReplayState
from headwater.model.backfills import ReplayReport
from headwater.model.values import Cell
from headwater.ports import Change, EntityState, Point

_PROGRESS_SECONDS = 1.0


class ReplayTask(msgspec.Struct, frozen=True):
    """The replay of one file of events; repeating it continues after its last commit."""

    job: ReplayJob
    file: Path

    def __repr__(self) -> str:
        # The settings of the job have passwords, and errors name the task.
        return f"the replay of {self.file.name}"

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
            self._check_code(services.registry.feature(self.job.feature))
            pruned = (await services.backends.catalog.load()).pruned.history
            while True:
                number, last = commits.last()
                if last.is_last:
                    return last.report
                # If another process was faster, continue after its commit.
                run = _Run(services, self.job, commits, number, pruned)
                await run.replay(self.events)

    def _check_code(self, feature: FeatureDef) -> None:
        """Raise BackfillRefusedError if the features file has changed since the backfill began."""
        if self.job.definition not in ("", definition_of(feature)):
            raise BackfillRefusedError(
                feature.name,
                "its code in the features file is not the code that the backfill began with; put "
                f"that back and continue, or run `headwater backfill cancel {feature.name}` first",
            )


class _Run:
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
        self._handlers = EventHandlers(services)
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
            await self._run_pages(pages)

    async def _run_pages(self, pages: Iterator[list[StoredEvent]]) -> None:
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
        await self._enter_page(page)
        chains: dict[str, list[StoredEvent]] = {}
        for stored in page:
            chains.setdefault(stored.event.entity_id, []).append(stored)
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

    async def _enter_page(self, page: Sequence[StoredEvent]) -> None:
        entity, entities = self._definition.entity.name, self._state.entities
        ids = list(dict.fromkeys(stored.event.entity_id for stored in page))
        new = [entity_id for entity_id in ids if entity_id not in self._written]
        await self._load(new)
        moments = [to_micros(stored.event.timestamp) for stored in page]
        for entity_id in ids:
            moments += [cell.as_of for cell in entities[entity, entity_id].cells.values()]
        self._state.past.begin_page(page, moments)

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
            state.write({entity_id: self._progress(entity_id) for entity_id in self._written})
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

    def _progress(self, entity_id: str) -> EntityProgress:
        cells = self._state.entities[self._definition.entity.name, entity_id].cells
        return EntityProgress(cells.get(self._definition.series), self._written[entity_id])
