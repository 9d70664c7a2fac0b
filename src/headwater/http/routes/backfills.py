"""Routes for backfills: past values of features, computed from stored events."""

from __future__ import annotations

from headwater.http.routing.route import Route
from headwater.http.routing.streaming import ProgressResponse
from headwater.model.backfills import (
    BackfillBody,
    BackfillProgress,
    BackfillReport,
    BackfillStatus,
    CancelledBackfill,
    CompareBody,
    Comparison,
    SwitchBody,
    SwitchReport,
)
from headwater.model.kinds import FeatureName
from headwater.model.progress import NDJSON, ActionLine, ProgressStep
from headwater.store.feature_store import FeatureStore

# A backfill whose client has gone ends after the file that is being replayed.
_FILES = 16


class Backfills:
    """Runs backfills, and serves their results."""

    def __init__(self, store: FeatureStore) -> None:
        self._verbs = store.backfills
        self._private = store.settings.record.is_private

    def routes(self) -> list[Route]:
        backfill = "/v1/backfills/{name}"
        return [
            Route(
                "POST",
                backfill,
                "admin",
                self.run_backfill,
                returns=NDJSON,
                documents=ActionLine[BackfillProgress, BackfillReport],
            ),
            Route("GET", backfill, "admin", self.read_backfill),
            Route("DELETE", backfill, "admin", self.cancel_backfill),
            Route(
                "POST",
                backfill + "/compare",
                "admin",
                self.compare_versions,
                returns=NDJSON,
                documents=ActionLine[ProgressStep, Comparison],
            ),
            Route("POST", backfill + "/switch", "admin", self.switch_version),
        ]

    async def run_backfill(self, name: FeatureName, body: BackfillBody) -> ProgressResponse:
        """Compute a new version of a feature from stored events.

        The lines show the progress, then the result. If the client disconnects, the backfill
        stops; the next request continues it.
        """
        return ProgressResponse(
            lambda report: self._verbs.run(
                name,
                since=body.since,
                until=body.until,
                switch=body.switch,
                files=_FILES,
                progress=report.show,
            ),
            private=self._private,
        )

    async def read_backfill(self, name: FeatureName) -> BackfillStatus:
        """Read how far the backfill of a feature is, and the events that failed in it."""
        return await self._verbs.status(name)

    async def compare_versions(self, name: FeatureName, body: CompareBody) -> ProgressResponse:
        """Compare the version that is served with the one that a backfill has made."""
        return ProgressResponse(
            lambda _: self._verbs.compare(name, limit=body.limit), private=self._private
        )

    async def switch_version(self, name: FeatureName, body: SwitchBody) -> SwitchReport:
        """Serve the version that a backfill has made, or another one that is kept fresh."""
        return await self._verbs.switch(name, version=body.version)

    async def cancel_backfill(self, name: FeatureName) -> CancelledBackfill:
        """Give up the unfinished backfill of a feature, and remove its values."""
        return CancelledBackfill(name, await self._verbs.cancel(name))
