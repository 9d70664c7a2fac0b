"""Routes that export the list of recorded contexts."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from starlette.responses import Response

from headwater.contexts.recorded import ContextQuery
from headwater.http.routes.exported_contexts import CSV, export_csv, export_ndjson
from headwater.http.routing.route import Route
from headwater.model.contexts import RecordSummary
from headwater.model.progress import NDJSON
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.records import SoughtContexts


class ContextLists:
    """Exports the list of recorded contexts."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        get = partial(Route, "GET", scope="records", applies_limits=True)
        return [
            get(
                "/v1/contexts/export-ndjson",
                function=self.export_contexts,
                returns=NDJSON,
                documents=RecordSummary,
            ),
            get(
                "/v1/contexts/export-csv",
                function=self.export_contexts_csv,
                returns=CSV,
                documents=str,
            ),
        ]

    async def export_contexts(self, **filters: Unpack[SoughtContexts]) -> Response:
        """Export the list of all recorded contexts that match, newest first, as lines of JSON.

        The connection is closed before the end if reading fails.
        """
        return await export_ndjson(self._store, ContextQuery(**filters))

    async def export_contexts_csv(self, **filters: Unpack[SoughtContexts]) -> Response:
        """Export the list of all recorded contexts that match, newest first, as CSV.

        A text that a spreadsheet would take for a formula begins with an apostrophe. The connection
        is closed before the end if reading fails.
        """
        return await export_csv(self._store, ContextQuery(**filters))
