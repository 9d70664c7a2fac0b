"""The backfills of an open store: compute past values of a feature, and serve the result."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime

from headwater.backends.runners.choice import runner_of
from headwater.backends.runners.inline import InlineRunner
from headwater.declarations.series import declared_entry
from headwater.engine.auditing import audited
from headwater.engine.backfill.backfills import (
    backfill_status,
    cancel_backfill,
    remove_folder,
    unfinished_backfill,
)
from headwater.engine.backfill.run import BackfillRun
from headwater.engine.engine import Engine
from headwater.errors import InvalidInputError
from headwater.history.backfill.compare import compare_versions
from headwater.history.backfill.steps import switched
from headwater.history.backfill.task import StoreSource
from headwater.model.backfills import (
    BackfillReport,
    BackfillStatus,
    Comparison,
    OnProgress,
    SwitchReport,
)
from headwater.model.catalog import CatalogState, FeatureVersion
from headwater.ports.runner import Runner
from headwater.store.openlineage import lineage_of
from headwater.store.runtime import Runtime
from headwater.store.task_store import FeaturesFile


class Backfills:
    """The backfills of a store, each of one feature by its name."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run(
        self,
        feature: str,
        since: datetime | None,
        until: datetime | None,
        *,
        switch: bool,
        source: StoreSource | None,
        runner: Runner | None,
        files: int | None,
        progress: OnProgress | None,
    ) -> BackfillReport:
        """Run a backfill, or continue it, until its version can be switched to."""
        _check_span(since, until, switch=switch)
        if runner is None and self._runtime.settings.runner.kind != "auto":
            runner = runner_of(self._runtime.settings.runner)
            source = source or await asyncio.to_thread(self._source)
        runner = runner or InlineRunner()
        engine = await self._runtime.open()
        await engine.catalog.follow()
        definition = self._runtime.registry.feature(feature)
        run = BackfillRun(
            self,
            engine,
            definition,
            source or OpenStore(self._runtime),
            runner,
            files or _file_count(await runner.slots()),
            progress or (lambda _: None),
        )
        number, series = None, definition.series
        async with (
            audited(engine, "backfills.run", definition.name, since=since, until=until),
            lineage_of(self._runtime, "backfill", definition.name) as told,
        ):
            told.reads_events(definition.triggers, engine.clock.now().isoformat())
            if until is None:
                version = await run.run(since)
                number, series = version.number, version.series
            else:
                await run.fill(since, until)
            told.writes(series, run.report.values if run.report else None)
        return BackfillReport(
            feature=definition.name,
            version=number,
            is_served=switch,
            replayed=run.report,
            failures=run.failures,
        )

    def _source(self) -> StoreSource:
        """Return how tasks elsewhere open this store."""
        if self._runtime.file is None:
            raise InvalidInputError(
                f"runner.kind is {self._runtime.settings.runner.kind!r}, and other processes "
                "cannot load declarations that are made in this one; move them to a features file "
                "and run `headwater backfill`, or load its store with load_store()"
            )
        return FeaturesFile.of(self._runtime.file, self._runtime.settings)

    async def status(self, feature: str) -> BackfillStatus:
        """Return how far the unfinished backfill is."""
        return await backfill_status(await self._runtime.open(), feature, OpenStore(self._runtime))

    async def compare(self, feature: str, *, limit: int) -> Comparison:
        """Compare the version that is served with the new one."""
        definition = self._runtime.registry.feature(feature)
        return await compare_versions(await self._runtime.open(), definition, limit=limit)

    async def switch(self, feature: str, version: int | None) -> SwitchReport:
        """Serve the new version, or another one that is kept fresh."""
        declared = self._runtime.registry.features
        name = self._runtime.registry.feature(feature).name
        engine = await self._runtime.open()
        before = await engine.backends.catalog.load()
        now = self._runtime.clock.now()
        state = await engine.catalog.change(
            lambda state: switched(state, name, declared, version, now)
        )
        served, previous = (_served(catalog, name, declared) for catalog in (state, before))
        await remove_folder(engine, served)
        return SwitchReport(name, served.number, previous.number)

    async def cancel(self, feature: str) -> int:
        """Give up the unfinished backfill; return the number of its version."""
        engine = await self._runtime.open()
        version = await unfinished_backfill(engine, feature)
        async with audited(engine, "backfills.cancel", feature, version=version.number):
            await cancel_backfill(engine, feature, version)
        return version.number


class OpenStore:
    """A store as tasks that run in its own process open it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        """Yield the engine for the running event loop, which closes it."""
        yield await self._runtime.open()


def _file_count(slots: int) -> int:
    """Return how many files of events keep slots busy until the end, a power of two."""
    return 1 if slots == 1 else 1 << (4 * slots - 1).bit_length()


def _served(state: CatalogState, name: str, declared: Collection[str]) -> FeatureVersion:
    entry = declared_entry(state, name, declared)
    assert entry is not None
    assert entry.active is not None
    return entry.active


def _check_span(since: datetime | None, until: datetime | None, *, switch: bool) -> None:
    for moment in (since, until):
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(
                f"{moment.isoformat()} has no time zone; pass an aware datetime, for example "
                "datetime(2026, 1, 1, tzinfo=UTC)"
            )
    if until is not None and switch:
        raise InvalidInputError(
            "with until, a backfill makes no new version to switch to; leave out one of both"
        )
    if since is not None and until is not None and since >= until:
        raise InvalidInputError(
            f"since ({since.isoformat()}) is not before until ({until.isoformat()}), so there are "
            "no events between them; exchange them"
        )
