"""Routes that list and export recorded contexts."""

from __future__ import annotations

from functools import partial
from typing import Unpack

from starlette.responses import Response

from headwater.contexts.recorded import ContextQuery
from headwater.http.routes.exported_contexts import CSV, export_csv, export_ndjson
from headwater.http.routing.route import Route
from headwater.model.contexts import ContextPage, RecordSummary
from headwater.model.kinds import ContextName, Cursor, Limit, Moment
from headwater.model.progress import NDJSON
from headwater.store.feature_store import FeatureStore
from headwater.store.verbs.records import CallerName, Order, Prefix, SoughtContexts, Status


class ContextLists:
    """Lists and exports recorded contexts."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        # No context has the name of a path below /v1/contexts, because names have no hyphen.
        get = partial(Route, "GET", scope="records", applies_limits=True)
        return [
            get("/v1/contexts", function=self.list_contexts),
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

    async def list_contexts(
        self,
        start: Moment | None = None,
        end: Moment | None = None,
        limit: Limit = 100,
        name: ContextName | None = None,
        freshness_status: Status | None = None,
        caller: CallerName | None = None,
        prefix: Prefix | None = None,
        order: Order = "newest",
        cursor: Cursor | None = None,
    ) -> ContextPage:
        """List recorded contexts from ``start`` until before ``end``, newest first.

        A page may have fewer contexts than the limit, or none, although more follow: read on while
        there is a ``next_cursor``.
        """
        return await self._store.list_contexts(
            start,
            end,
            limit,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            prefix=prefix,
            oldest_first=order == "oldest",
            cursor=cursor,
        )

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
