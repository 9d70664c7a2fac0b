"""Backfills: computing past values of a feature, and serving the result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.declarations.series import declared_entry
from headwater.engine.auditing import audited
from headwater.errors import InvalidInputError
from headwater.features.call_scope import check_not_replaying
from headwater.model.backfills import (
    BackfillReport,
    BackfillStatus,
    Comparison,
    OnProgress,
    SwitchReport,
)
from headwater.model.catalog import CatalogState, FeatureVersion
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.declarations.features import FeatureDef
    from headwater.engine.backfill.run import BackfillRun
    from headwater.engine.engine import Engine
    from headwater.history.backfill.job import StoreSource
    from headwater.ports.runner import Runner


class BackfillVerbs:
    """``store.backfills``: past values of triggered features, computed from stored events."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run(
        self,
        feature: FeatureRef,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        switch: bool = False,
        source: StoreSource | None = None,
        runner: Runner | None = None,
        files: int = 1,
        progress: OnProgress | None = None,
    ) -> BackfillReport:
        """Compute a new version of a feature from stored events; continue if one is unfinished.

        Events are replayed through the present function. Then the workers keep the new version
        fresh, next to the one that is served. If none are running, one runs here meanwhile. With
        ``switch``, the new version is served at the end.

        With ``since``, values of before that time are those of the version that is served. With
        ``until``, there is no new version: values of before that time are added to the history of
        the one that is served, for each entity before its first value. An entity without a value is
        served the last one that was added, which does not count the events after that time.

        The replay runs in this process; ``runner`` and ``source`` let other processes take part,
        each with some of the ``files`` that events are exported to.

        >>> (await store.backfills.run("total_spend", switch=True)).version
        2
        """
        check_not_replaying("backfill")
        _check_span(since, until, switch=switch)
        engine = await self._runtime.open()
        await engine.catalog.follow()
        definition = self._runtime.registry.feature(feature_name(feature))
        run = self._new_run(engine, definition, source, runner, files, progress)
        number = None
        async with audited(engine, "backfills.run", definition.name, since=since, until=until):
            if until is None:
                number = (await run.run(since)).number
            else:
                await run.fill(since, until)
        if switch:
            await self.switch(feature)
        return BackfillReport(
            feature=definition.name,
            version=number,
            is_served=switch,
            replayed=run.report,
            failures=run.failures,
        )

    def _new_run(
        self,
        engine: Engine,
        definition: FeatureDef,
        source: StoreSource | None,
        runner: Runner | None,
        files: int,
        progress: OnProgress | None,
    ) -> BackfillRun:
        from headwater.backends.inline_runner import InlineRunner  # noqa: PLC0415
        from headwater.engine.backfill.run import BackfillRun  # noqa: PLC0415 - loaded with the engine

        return BackfillRun(
            self,
            engine,
            definition,
            source or OpenStore(self._runtime),
            runner or InlineRunner(),
            files,
            progress or _ignore,
        )

    async def status(self, feature: FeatureRef) -> BackfillStatus:
        """Return how far the backfill of a feature is, and the events that failed in it.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.status("total_spend")).state
        'ready'
        """
        from headwater.engine.backfill.backfills import backfill_status  # noqa: PLC0415 - loaded with the engine

        engine = await self._runtime.open()
        return await backfill_status(engine, feature_name(feature), OpenStore(self._runtime))

    async def compare(self, feature: FeatureRef, *, limit: int = 10) -> Comparison:
        """Compare the version that is served with the one that a backfill has made.

        All values that are served are compared, and the history of some entities. At most
        ``limit`` examples of different values are returned.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.compare("total_spend")).online.equal
        2
        """
        from headwater.history.backfill.compare import compare_versions  # noqa: PLC0415 - loaded with the engine

        definition = self._runtime.registry.feature(feature_name(feature))
        return await compare_versions(await self._runtime.open(), definition, limit=limit)

    async def switch(self, feature: FeatureRef, *, version: int | None = None) -> SwitchReport:
        """Serve the version that a backfill has made, or another one that is kept fresh.

        Other processes follow within about a second. The version that was served until now is kept
        fresh for ten seconds more, in which it can be switched back to.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.switch("total_spend")).version
        2
        """
        check_not_replaying("switch")
        from headwater.engine.backfill.backfills import remove_folder  # noqa: PLC0415 - loaded with the engine
        from headwater.history.backfill.steps import switched  # noqa: PLC0415

        name = self._runtime.registry.feature(feature_name(feature)).name
        engine = await self._runtime.open()
        before = await engine.backends.catalog.load()
        now = self._runtime.clock.now()
        declared = self._runtime.registry.features
        async with audited(engine, "backfills.switch", name, version=version):
            state = await engine.catalog.change(
                lambda state: switched(state, name, declared, version, now)
            )
        served, previous = (_served(each, name, declared) for each in (state, before))
        await remove_folder(engine, served)
        return SwitchReport(name, served.number, previous.number)

    async def cancel(self, feature: FeatureRef) -> int:
        """Give up the unfinished backfill of a feature, and remove its values.

        Return the number of the version that was given up. The version that is served stays.

        >>> report = await store.backfills.run("total_spend")
        >>> await store.backfills.cancel("total_spend")
        2
        """
        check_not_replaying("cancel")
        from headwater.engine.backfill.backfills import cancel_backfill, unfinished_backfill  # noqa: PLC0415 - loaded with the engine

        name, engine = feature_name(feature), await self._runtime.open()
        version = await unfinished_backfill(engine, name)
        async with audited(engine, "backfills.cancel", name, version=version.number):
            await cancel_backfill(engine, name, version)
        return version.number


class OpenStore:
    """A store as tasks that run in its own process open it."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Engine]:
        """Yield the engine for the running event loop, which closes it."""
        yield await self._runtime.open()


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


def _ignore(_progress: object) -> None:
    """Show nothing."""


class SyncBackfillVerbs(Blocking[BackfillVerbs]):
    """``store.sync.backfills``."""

    run = blocking(BackfillVerbs.run)
    status = blocking(BackfillVerbs.status)
    compare = blocking(BackfillVerbs.compare)
    switch = blocking(BackfillVerbs.switch)
    cancel = blocking(BackfillVerbs.cancel)
