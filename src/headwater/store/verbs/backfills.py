"""Backfills: computing past values of a feature, and serving the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from headwater.core.blocking import Blocking, blocking
from headwater.core.progress import callback
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import UnknownNameError
from headwater.model.backfills import (
    BackfillReport,
    BackfillStatus,
    CancelledBackfill,
    Comparison,
    OnProgress,
    SwitchReport,
)
from headwater.model.kinds import ROWS, FeatureName, Moment
from headwater.store.verbs.verb import LONG_AT_ONCE, Sent, Verbs, verb

if TYPE_CHECKING:
    from headwater.history.backfill.task import StoreSource
    from headwater.ports.runner import Runner
    from headwater.store.backfills import Backfills

Feature = Annotated[FeatureRef, Sent(FeatureName, feature_name, name="name")]
Switch = Annotated[
    bool, Meta(description="Serve the new version when it is ready.", examples=[False])
]
Examples = Annotated[int, ROWS, Meta(ge=0, description="How many examples at most.", examples=[10])]
Version = Annotated[int, Meta(ge=1, description="The version to serve.", examples=[2])]


class BackfillVerbs(Verbs):
    """``store.backfills``: past values of triggered features, computed from stored events."""

    def _backfills(self) -> Backfills:
        from headwater.store.backfills import Backfills  # noqa: PLC0415 - loads the engine

        return Backfills(self._runtime)

    @verb(
        "POST",
        "/v1/backfills/{name}",
        scope="admin",
        operation="run_backfill",
        changes="backfills.run",
        audits_itself=True,
        is_long=True,
        at_once=LONG_AT_ONCE,
        local=("source", "runner", "files"),
    )
    async def run(
        self,
        feature: Feature,
        *,
        since: Moment | None = None,
        until: Moment | None = None,
        switch: Switch = False,
        source: StoreSource | None = None,
        runner: Runner | None = None,
        files: int | None = None,
        progress: OnProgress | bool | None = None,
    ) -> BackfillReport:
        """Compute a new version of a feature from stored events; continue if one is unfinished.

        Events are replayed through the present function. Then the workers keep the new version
        fresh, next to the one that is served. If none are running, one runs meanwhile in the
        process of the replay. With ``switch``, the new version is served at the end. If the call
        is cancelled or its connection is lost, the backfill stops; the next call continues it.

        With ``since``, values of before that time are those of the version that is served. With
        ``until``, there is no new version: values of before that time are added to the history of
        the one that is served, for each entity before its first value. An entity without a value is
        served the last one that was added, which does not count the events after that time.

        >>> (await store.backfills.run("total_spend", switch=True)).version
        2

        ``progress`` is called with each step; with True, a bar is shown.

        In the process of a store, ``runner`` and ``source`` let other processes take part, each
        with some of the ``files`` that events are exported to. By default they are those of the
        setting ``runner``.
        """
        report = await self._backfills().run(
            feature_name(feature),
            since,
            until,
            switch=switch,
            source=source,
            runner=runner,
            files=files,
            progress=callback(progress),
        )
        if switch:
            await self.switch(feature)
        return report

    @verb(
        "GET",
        "/v1/backfills/{name}",
        scope="admin",
        operation="read_backfill",
        raises=(UnknownNameError,),
    )
    async def status(self, feature: Feature) -> BackfillStatus:
        """Return how far the backfill of a feature is, and the events that failed in it.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.status("total_spend")).state
        'ready'
        """
        return await self._backfills().status(feature_name(feature))

    @verb(
        "DELETE",
        "/v1/backfills/{name}",
        scope="admin",
        operation="cancel_backfill",
        changes="backfills.cancel",
        audits_itself=True,
        answer=CancelledBackfill,
        raises=(UnknownNameError,),
    )
    async def cancel(self, feature: Feature) -> int:
        """Give up the unfinished backfill of a feature, and remove its values.

        Return the number of the version that was given up. The version that is served stays.

        >>> report = await store.backfills.run("total_spend")
        >>> await store.backfills.cancel("total_spend")
        2
        """
        return await self._backfills().cancel(feature_name(feature))

    @verb(
        "POST",
        "/v1/backfills/{name}/compare",
        scope="admin",
        operation="compare_versions",
        is_long=True,
        at_once=LONG_AT_ONCE,
    )
    async def compare(self, feature: Feature, *, limit: Examples = 10) -> Comparison:
        """Compare the version that is served with the one that a backfill has made.

        All values that are served are compared, and the history of some entities. At most
        ``limit`` examples of different values are returned.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.compare("total_spend")).online.equal
        2
        """
        return await self._backfills().compare(feature_name(feature), limit=limit)

    @verb(
        "POST",
        "/v1/backfills/{name}/switch",
        scope="admin",
        operation="switch_version",
        changes="backfills.switch",
        target="name",
        notes=("version",),
        raises=(UnknownNameError,),
    )
    async def switch(self, feature: Feature, *, version: Version | None = None) -> SwitchReport:
        """Serve the version that a backfill has made, or another one that is kept fresh.

        Other processes follow within about a second. The version that was served until now is kept
        fresh for ten seconds more, in which it can be switched back to.

        >>> report = await store.backfills.run("total_spend")
        >>> (await store.backfills.switch("total_spend")).version
        2
        """
        return await self._backfills().switch(feature_name(feature), version)


class SyncBackfillVerbs(Blocking[BackfillVerbs]):
    """The blocking form of backfills."""

    run = blocking(BackfillVerbs.run)
    status = blocking(BackfillVerbs.status)
    compare = blocking(BackfillVerbs.compare)
    switch = blocking(BackfillVerbs.switch)
    cancel = blocking(BackfillVerbs.cancel)
