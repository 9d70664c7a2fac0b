"""The verbs of a client for backfills."""

from __future__ import annotations

from datetime import datetime

from headwater.client.server import Server
from headwater.client.stream_lines import shown
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.model.backfills import (
    BackfillBody,
    BackfillProgress,
    BackfillReport,
    BackfillStatus,
    CancelledBackfill,
    CompareBody,
    Comparison,
    OnProgress,
    SwitchBody,
    SwitchReport,
)

_BACKFILL = "/v1/backfills/{}"


class BackfillCalls:
    """``client.backfills``: past values of triggered features, computed from stored events."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def run(
        self,
        feature: FeatureRef,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        switch: bool = False,
        progress: OnProgress | None = None,
    ) -> BackfillReport:
        """Compute a new version of a feature from stored events; continue if one is unfinished.

        The options are those of ``store.backfills.run``. The events are replayed in the server.
        If this is cancelled or the connection is lost, the backfill stops; run it again to
        continue.

        >>> (await client.backfills.run("total_spend", switch=True)).version
        2
        """
        return await self._server.follow(
            BackfillReport,
            _BACKFILL,
            feature_name(feature),
            body=BackfillBody(since=since, until=until, switch=switch),
            on_line=shown(BackfillProgress, progress),
        )

    async def status(self, feature: FeatureRef) -> BackfillStatus:
        """Return how far the backfill of a feature is, and the events that failed in it.

        >>> (await client.backfills.status("total_spend")).state
        'ready'
        """
        return await self._server.get(BackfillStatus, _BACKFILL, feature_name(feature))

    async def compare(self, feature: FeatureRef, *, limit: int = 10) -> Comparison:
        """Compare the version that is served with the one that a backfill has made.

        >>> (await client.backfills.compare("total_spend")).online.equal
        2
        """
        path, body = _BACKFILL + "/compare", CompareBody(limit)
        return await self._server.follow(Comparison, path, feature_name(feature), body=body)

    async def switch(self, feature: FeatureRef, *, version: int | None = None) -> SwitchReport:
        """Serve the version that a backfill has made, or another one that is kept fresh.

        >>> (await client.backfills.switch("total_spend")).version
        2
        """
        path, body = _BACKFILL + "/switch", SwitchBody(version)
        return await self._server.post(SwitchReport, path, feature_name(feature), body=body)

    async def cancel(self, feature: FeatureRef) -> int:
        """Give up the unfinished backfill of a feature, and remove its values.

        Return the number of the version that was given up.

        >>> await client.backfills.cancel("total_spend")
        2
        """
        name = feature_name(feature)
        return (await self._server.remove(CancelledBackfill, _BACKFILL, name)).version
