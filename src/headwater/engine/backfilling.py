"""A backfill from its beginning until workers keep the new version fresh; it can be resumed.

The catalog says how far it is, and every step can be repeated:

- building: a consumer group keeps the events after the start. The stored ones before it are
  exported and replayed, the results go to history and online, and the group's events are run for
  the new version until few are left.
- joining: workers take over partition by partition; see `joining`. If there are none, one runs
  here.
- ready: the group is dropped, and the version can be compared and switched to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Literal

import msgspec
from msgspec.structs import replace

from headwater.core.values import new_id
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import HasRuntime
from headwater.engine.backfills import (
    backfill_folder,
    backfill_of,
    drop_group,
    group_named,
    replay_order,
)
from headwater.engine.catch_up import CatchUp, catching_up
from headwater.engine.engine import Engine
from headwater.engine.worker import Opens, Worker
from headwater.errors import BackfillRefusedError
from headwater.history.backfill.order import (
    ReplayOrder,
    ReplayProgress,
    ReplayReport,
    StoreSource,
)
from headwater.history.backfill.replay import last_cells, replay, replayed_changes
from headwater.history.backfill.steps import (
    ChangeVersion,
    change_version,
    joining,
    started,
    version_of,
)
from headwater.ports import BackfillState, Change, FeatureVersion
from headwater.ports.runner import Runner

Phase = Literal["export", "replay", "install", "catch up", "join"]

_FEW_EVENTS = 1_000
_CATCH_UP_ROUNDS = 20
_ROWS_PER_APPEND = 100_000
_PAUSE = 0.05
_PATIENCE = 5.0
"""Seconds without a partition that joins after which a worker is started here."""


class BackfillProgress(msgspec.Struct, frozen=True):
    """How far a phase of a backfill is; the total and the seconds left are None if unknown."""

    phase: Phase
    done: int = 0
    total: int | None = None
    seconds_left: float | None = None


OnProgress = Callable[[BackfillProgress], None]


class BackfillRun:
    """One run of a backfill of one feature, in this process."""

    def __init__(
        self,
        store: HasRuntime[Opens],
        engine: Engine,
        feature: FeatureDef,
        source: StoreSource,
        runner: Runner,
        files: int,
        on_progress: OnProgress,
    ) -> None:
        self._store = store
        self._engine = engine
        self._feature = feature
        self._source = source
        self._runner = runner
        self._files = files
        self._show = on_progress
        self.report: ReplayReport | None = None

    async def run(self, version: FeatureVersion) -> FeatureVersion:
        """Continue a backfill until its version is ready."""
        variant = replace(self._feature, series=version.series)
        if version.state == "building":
            version = await self._build(variant, version)
        if version.state == "joining":
            version = await self._join(version)
        await drop_group(self._engine, backfill_of(version).group)
        return version

    async def _build(self, variant: FeatureDef, version: FeatureVersion) -> FeatureVersion:
        groups, backfill = self._engine.backends.groups, backfill_of(version)
        start = await groups.create(backfill.group, like=backfill.like)
        version = await self._change(version, started(start))
        async with catching_up(self._engine, variant, backfill) as member:
            await self._replay(variant, version)
            await self._catch_up(member, backfill)
        return await self._change(version, joining)

    async def _replay(self, variant: FeatureDef, version: FeatureVersion) -> None:
        installed = backfill_folder(self._engine, backfill_of(version)) / "installed"
        if installed.exists():
            return
        await self._export(variant, backfill_of(version))
        order = replay_order(self._engine, variant.name, version, self._source)
        self.report = await replay(order, self._runner, self._show_replay)
        await self._install(order, variant)
        installed.touch()

    def _show_replay(self, progress: ReplayProgress) -> None:
        self._show(
            BackfillProgress("replay", progress.events, progress.total, progress.seconds_left)
        )

    async def _export(self, variant: FeatureDef, backfill: BackfillState) -> None:
        """Export the stored events up to the start, unless that is done."""
        folder = backfill_folder(self._engine, backfill)
        if (folder / "events").exists():
            return
        self._show(BackfillProgress("export"))
        exported = folder / f"events-{new_id()}"
        exported.mkdir(parents=True)
        await self._engine.backends.offline.export_events(
            exported,
            variant.triggers,
            backfill.start,
            since=backfill.since,
            files=self._files,
        )
        with suppress(OSError):  # another run was faster
            exported.rename(folder / "events")

    async def _install(self, order: ReplayOrder, variant: FeatureDef) -> None:
        """Write the results to history and online, which changes nothing if it was done before."""
        backends, done = self._engine.backends, 0
        total = self.report.values if self.report else None
        for changes in _larger(replayed_changes(order, variant)):
            self._show(BackfillProgress("install", done, total))
            await backends.offline.append(changes)
            done += len(changes)
        now = self._engine.clock.micros()
        for page in last_cells(order):
            current = {
                entity_id: cells
                for entity_id, cells in page.items()
                if not cells[order.series].expired(now)
            }
            await backends.online.restore(variant.entity.name, current)
        self._show(BackfillProgress("install", done, total))

    async def _catch_up(self, member: CatchUp, backfill: BackfillState) -> None:
        """Run the events since the start, until few are left for the workers."""
        for _ in range(_CATCH_UP_ROUNDS):
            before = member.events
            positions = await self._engine.backends.groups.positions(backfill.like)
            waiting = await group_named(self._engine, backfill.group)
            for partition, upto in positions.items():
                await _advance_when_free(member, partition, upto)
                total = before + waiting.waiting if waiting else None
                self._show(BackfillProgress("catch up", member.events, total))
            if member.events - before < _FEW_EVENTS:
                return

    async def _join(self, version: FeatureVersion) -> FeatureVersion:
        """Wait until workers have joined in every partition; run one here if they do not."""
        joined, deadline = -1, 0.0
        async with _HelpingWorker(self._store) as worker:
            while version.state == "joining":
                backfill = backfill_of(version)
                if len(backfill.joined) != joined:
                    joined, deadline = len(backfill.joined), time.monotonic() + _PATIENCE
                    partitions = self._engine.backends.bus.partitions
                    self._show(BackfillProgress("join", joined, partitions))
                group = await group_named(self._engine, backfill.like)
                if group is None or not group.workers or time.monotonic() > deadline:
                    worker.start()
                await worker.check()
                await asyncio.sleep(_PAUSE)
                version = await self._present(version)
        return version

    async def _present(self, version: FeatureVersion) -> FeatureVersion:
        """Return the version as it is now; raise if the backfill was cancelled."""
        state = await self._engine.backends.catalog.load()
        return self._checked(version_of(state, self._feature.name, version.series))

    async def _change(self, version: FeatureVersion, change: ChangeVersion) -> FeatureVersion:
        name, series = self._feature.name, version.series
        state = await self._engine.catalog.change(
            lambda state: change_version(state, name, series, change)
        )
        return self._checked(version_of(state, name, series))

    def _checked(self, version: FeatureVersion | None) -> FeatureVersion:
        if version is None or version.state == "retired":
            raise BackfillRefusedError(self._feature.name, "this backfill of it was cancelled")
        return version


async def _advance_when_free(member: CatchUp, partition: int, upto: str) -> None:
    while True:
        if await member.advance(partition, upto):
            return
        await asyncio.sleep(_PAUSE)  # the lease of a run that died expires


def _larger(pages: Iterable[list[Change]]) -> Iterator[list[Change]]:
    """Yield the same changes in larger pages."""
    changes: list[Change] = []
    for page in pages:
        changes += page
        if len(changes) >= _ROWS_PER_APPEND:
            yield changes
            changes = []
    if changes:
        yield changes


class _HelpingWorker:
    """A worker in this process that is started if it is needed, and stopped at the end."""

    def __init__(self, store: HasRuntime[Opens]) -> None:
        self._worker = Worker(store)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._worker.run())

    async def check(self) -> None:
        """Raise the error of a worker that has failed."""
        if self._task is not None and self._task.done():
            await self._task

    async def __aenter__(self) -> _HelpingWorker:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._worker.stop()
            await self._task
