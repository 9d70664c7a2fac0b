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
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from shutil import rmtree

from msgspec.structs import replace

from headwater.core.clock import to_micros
from headwater.core.logging import log
from headwater.core.sql_literals import text
from headwater.core.tracing import step
from headwater.declarations.features import FeatureDef
from headwater.declarations.run_set import declared_as, series_of
from headwater.declarations.runtime import HasRuntime
from headwater.engine.backfill.backfills import (
    backfill_folder,
    backfill_of,
    backfills_folder,
    begin_backfill,
    drop_group,
    exported_files,
    group_named,
    replay_job,
    shown_failures,
)
from headwater.engine.engine import Engine
from headwater.engine.worker.joining import CatchUp, catching_up
from headwater.engine.worker.worker import Opens, Worker
from headwater.errors import BackfillRefusedError
from headwater.features.window_states import WindowStates
from headwater.history.backfill.erasing import begin, in_use, install, is_installed
from headwater.history.backfill.replay import (
    check_replayable,
    copied_changes,
    last_cells,
    replay,
    replayed_changes,
)
from headwater.history.backfill.steps import check_kept, joining, started
from headwater.history.backfill.task import (
    ReplayJob,
    StoreSource,
)
from headwater.history.importing import IMPORT
from headwater.history.versions import ChangeVersion, change_version, version_of
from headwater.model.backfills import BackfillProgress, OnProgress, ReplayReport
from headwater.model.catalog import BackfillState, FeatureVersion
from headwater.model.dead_letters import DeadLetter
from headwater.model.values import Cells, new_id
from headwater.ports import Change
from headwater.ports.runner import Runner
from headwater.telemetry.attributes import FEATURE, SERIES

_FEW_EVENTS = 1_000
_ROWS_PER_APPEND = 100_000
_PAUSE = 0.05
_PATIENCE = 5.0
"""Seconds without a partition that joins after which a worker is started here."""


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
        self.failures: Sequence[DeadLetter] = ()
        """The first events that failed in the replay."""

    async def run(self, since: datetime | None) -> FeatureVersion:
        """Begin a backfill, or continue it, until its version is ready."""
        version = await begin_backfill(self._engine, self._feature, since)
        variant = replace(self._feature, series=version.series)
        with step(self._engine.tracer, "backfill", {FEATURE: variant.name, SERIES: variant.series}):
            if version.state == "building":
                version = await self._build(variant, version)
            if version.state == "joining":
                version = await self._join(version)
            await drop_group(self._engine, backfill_of(version).group)
        return version

    async def _build(self, variant: FeatureDef, version: FeatureVersion) -> FeatureVersion:
        groups, backfill = self._engine.backends.groups, backfill_of(version)
        start = await groups.create(backfill.group, like=backfill.main_group)
        version = await self._change(version, started(start))
        async with catching_up(self._engine, variant, backfill) as member:
            await self._replay(variant, version)
            await self._catch_up(member, backfill)
        return await self._change(version, joining)

    async def _replay(self, variant: FeatureDef, version: FeatureVersion) -> None:
        backfill = backfill_of(version)
        folder = backfill_folder(self._engine, backfill)
        if is_installed(folder):
            return
        with in_use(folder):
            await self._begin(folder)
            await self._export(folder, variant, backfill.start, backfill.since)
            if backfill.since is not None or await self._has_imported():
                await self._copy(folder, variant, backfill.since)
            job = replay_job(self._engine, variant, version, self._source)
            with step(self._engine.tracer, "replay", {FEATURE: variant.name}):
                await self._run_handlers(job)
            await self._add_history(replayed_changes(job, variant))
            await self._serve_last(job, variant)
            ledger = await self._engine.backends.erasures.refresh()
            await asyncio.to_thread(install, folder, variant.entity.name, ledger)

    async def _begin(self, folder: Path) -> None:
        ledger = await self._engine.backends.erasures.refresh()
        await asyncio.to_thread(begin, folder, self._feature.entity.name, ledger)

    async def fill(self, since: datetime | None, until: datetime) -> None:
        """Add values of before a time to history, for each entity before its first value.

        An entity that had no value is served its last one, so that history and online agree.
        """
        check_replayable(self._feature)
        named = f"{self._feature.series} {since} {until}"
        folder = backfills_folder(self._engine) / sha256(named.encode()).hexdigest()[:16]
        group = self._engine.settings.worker.consumer_group
        upto = await self._engine.backends.groups.positions(group)
        await self._check_kept(folder, since)
        with in_use(folder):
            await self._begin(folder)
            await self._export(folder, self._feature, upto, since)
            job = ReplayJob(
                source=self._source,
                feature=self._feature.name,
                series=self._feature.series,
                folder=folder / "replay",
                files=exported_files(folder),
                order=self._feature.order,
                since=since,
                until=until,
            )
            await self._run_handlers(job)
            await self._check_kept(folder, since)
            limit = to_micros(until)
            pages = replayed_changes(job, self._feature)
            await self._add_history([c for c in page if c.cell.as_of < limit] for page in pages)
            await self._serve_last(job, self._feature)
        await asyncio.to_thread(rmtree, folder)

    async def _check_kept(self, folder: Path, since: datetime | None) -> None:
        """Raise an error, and remove the folder, if events or values it needs were pruned."""
        state = await self._engine.backends.catalog.load()
        tolerance = self._engine.settings.ingest.future_tolerance
        try:
            check_kept(self._feature.name, state.pruned, since, tolerance)
        except BackfillRefusedError:
            await asyncio.to_thread(rmtree, folder, ignore_errors=True)
            raise

    async def _run_handlers(self, job: ReplayJob) -> None:
        self.report = await replay(job, self._runner, self._show)
        self.failures = await shown_failures(self._engine, job)

    async def _export(
        self, folder: Path, feature: FeatureDef, upto: Mapping[int, str], since: datetime | None
    ) -> None:
        """Export stored events, unless that is done."""
        if (folder / "events").exists():
            return
        self._show(BackfillProgress("export"))
        exported = folder / f"events-{new_id()}"
        exported.mkdir(parents=True)
        # In stream order, late events from before that time may follow later ones.
        earliest = since if feature.order == "event_time" else None
        await self._engine.backends.offline.export_events(
            exported, feature.triggers, upto, since=earliest, files=self._files
        )
        with suppress(OSError):  # another run was faster
            exported.rename(folder / "events")

    async def _add_history(self, pages: Iterable[list[Change]]) -> None:
        """Write the results to history; rows that it has already are left out."""
        done, total = 0, self.report.values if self.report else None
        rows = chain.from_iterable(pages)
        while changes := list(islice(rows, _ROWS_PER_APPEND)):
            self._show(BackfillProgress("install", done, total))
            await self._engine.backends.offline.append(changes)
            done += len(changes)
        self._show(BackfillProgress("install", done, total))

    async def _has_imported(self) -> bool:
        """Return whether contributions were imported: no event gives them again."""
        if self._feature.windows is None:
            return False
        imported = f"feature = {text(self._feature.series)} AND cause LIKE '{IMPORT}%'"
        rows = await self._engine.backends.offline.query(
            f"SELECT 1 AS found FROM feature_history WHERE {imported} LIMIT 1", {}
        )
        return bool(rows.rows)

    async def _copy(self, folder: Path, variant: FeatureDef, since: datetime | None) -> None:
        """Copy the values from before a time, and imported contributions, from what is served."""
        self._show(BackfillProgress("copy"))
        file = folder / f"history-{new_id()}.parquet"
        await self._engine.backends.offline.export_history(file, after=0)
        if not file.exists():
            return  # there is no history
        last: dict[str, Cells] = {}
        for page in copied_changes(file, folder, self._feature, variant, since):
            await self._engine.backends.offline.append(page)
            last |= {change.entity_id: {change.feature: change.cell} for change in page}
            # The values of the last entity may continue on the next page.
            unfinished = {page[-1].entity_id: last.pop(page[-1].entity_id)}
            await self._serve(variant, last)
            last = unfinished
        await self._serve(variant, last)
        file.unlink()

    async def _serve_last(self, job: ReplayJob, variant: FeatureDef) -> None:
        """Write the last values online, where there are no newer ones.

        Expired ones as well, as a worker leaves them: a late event still follows them.
        """
        for page in last_cells(job):
            await self._serve(variant, page)

    async def _serve(self, variant: FeatureDef, last: Mapping[str, Cells]) -> None:
        """Write the last values of entities online; of a family, the states of its windows."""
        if variant.windows is None:
            await self._engine.backends.online.restore(variant.entity.name, last)
        else:
            states = WindowStates(self._engine.backends)
            await states.rebuild(variant, list(last), self._engine.clock)

    async def _catch_up(self, member: CatchUp, backfill: BackfillState) -> None:
        """Run the events since the start until few are left, or they are not getting fewer.

        Workers that write to the same entities may slow this down. The rest is run while they
        take over, when they do not.
        """
        before = None
        while True:
            began, group = member.events, await group_named(self._engine, backfill.group)
            total = began + group.waiting if group else None

            async def advance(partition: int, upto: str, total: int | None = total) -> None:
                while not await member.advance(partition, upto, insists=False):
                    if member.is_contended:
                        break
                    await asyncio.sleep(_PAUSE)  # the lease of a run that died expires
                self._show(BackfillProgress("catch up", member.events, total))

            positions = await self._engine.backends.groups.positions(backfill.main_group)
            await asyncio.gather(*(advance(*item) for item in positions.items()))
            count = member.events - began
            is_slow = member.is_contended or (before is not None and count > before / 2)
            if count < _FEW_EVENTS or is_slow:
                return
            before = count

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
                group = await group_named(self._engine, backfill.main_group)
                if group is None or not group.workers:
                    worker.start()
                elif time.monotonic() > deadline:
                    deadline = time.monotonic() + _PATIENCE
                    if not await self._waits_for_deploy(version, backfill.main_group):
                        worker.start()
                await worker.check()
                await asyncio.sleep(_PAUSE)
                state = await self._engine.backends.catalog.load()
                version = self._checked(version_of(state, version.series))
        return version

    async def _waits_for_deploy(self, version: FeatureVersion, group: str) -> bool:
        """Return whether workers of other code run the feature, which a helper would replace."""
        served = {variant.series for variant in self._engine.registry.versions(self._feature.name)}
        expected = {
            text for series in served for text in declared_as(replace(self._feature, series=series))
        }
        workers = [
            worker
            for worker, declared in (await self._engine.backends.groups.declared(group)).items()
            if any(
                series_of(declaration) in served and declaration not in expected
                for declaration in declared
            )
        ]
        if workers:
            log.warning(
                "backfill waits: workers have other code of the feature",
                feature=self._feature.name,
                version=version.number,
                workers=workers,
                remedy="restart the workers with the features file of this backfill, or run "
                f"`headwater backfill cancel {self._feature.name}`",
            )
        return bool(workers)

    async def _change(self, version: FeatureVersion, change: ChangeVersion) -> FeatureVersion:
        series = version.series
        state = await self._engine.catalog.change(
            lambda state: change_version(state, series, change)
        )
        return self._checked(version_of(state, series))

    def _checked(self, version: FeatureVersion | None) -> FeatureVersion:
        """Return a version as it is now; raise if the backfill was cancelled."""
        if version is None or version.state == "retired":
            raise BackfillRefusedError(self._feature.name, "this backfill of it was cancelled")
        return version


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
