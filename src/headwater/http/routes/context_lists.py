"""Routes that list, count and export recorded contexts."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, TypedDict, Unpack

import msgspec
from starlette.responses import Response

from headwater.contexts.recorded import ContextQuery
from headwater.contexts.recorded.histogram import MOST_BUCKETS
from headwater.http.routes.exported_contexts import CSV, export_csv, export_ndjson
from headwater.http.routing.route import Route
from headwater.model.contexts import ContextHistogram, ContextPage, RecordSummary
from headwater.model.kinds import (
    ContextName,
    Cursor,
    EntityName,
    FeatureName,
    IndexName,
    Limit,
    Moment,
)
from headwater.model.lineage import FreshnessStatus
from headwater.model.progress import NDJSON
from headwater.model.values import LONGEST_ID
from headwater.store.feature_store import FeatureStore

Status = Annotated[
    FreshnessStatus, msgspec.Meta(description="A freshness status.", examples=["guaranteed"])
]
SoughtEntity = Annotated[
    EntityName,
    msgspec.Meta(description="The name of a declared entity; it needs ``entity_id`` as well."),
]
SoughtEntityId = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=LONGEST_ID, description="An entity's id.", examples=["ada"]
    ),
]
SoughtDocument = Annotated[
    str,
    msgspec.Meta(
        min_length=1, max_length=LONGEST_ID, description="A document's id.", examples=["shipping"]
    ),
]
SoughtChunk = Annotated[
    str, msgspec.Meta(min_length=1, description="A chunk's id.", examples=["shipping#0"])
]

CallerName = Annotated[
    str,
    msgspec.Meta(
        min_length=1, description="The name of the key that assembled it.", examples=["web"]
    ),
]
Prefix = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description="The beginning of a context id; or of a record hash, with ``sha256:`` or at "
        "least 8 digits.",
        examples=["01a1de13"],
    ),
]
Order = Annotated[
    Literal["newest", "oldest"],
    msgspec.Meta(description="Which contexts come first.", examples=["oldest"]),
]
Buckets = Annotated[
    int,
    msgspec.Meta(ge=1, le=MOST_BUCKETS, description="How many buckets at most.", examples=[24]),
]


class SoughtContexts(TypedDict, total=False):
    """The filters of contexts by what they used, and by their own fields."""

    feature: FeatureName
    entity: SoughtEntity
    entity_id: SoughtEntityId
    chunk: SoughtChunk
    document: SoughtDocument
    index: IndexName
    start: Moment
    end: Moment
    name: ContextName
    freshness_status: Status
    caller: CallerName
    prefix: Prefix


class ContextLists:
    """Lists, counts and exports recorded contexts."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        # No context has the name of a path below /v1/contexts, because names have no hyphen.
        get = partial(Route, "GET", scope="records", applies_limits=True)
        return [
            get("/v1/contexts", function=self.list_contexts),
            get("/v1/contexts/by-provenance", function=self.find_contexts),
            get("/v1/contexts/by-time", function=self.count_contexts),
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

    async def find_contexts(
        self,
        order: Order = "newest",
        limit: Limit = 100,
        cursor: Cursor | None = None,
        **filters: Unpack[SoughtContexts],
    ) -> ContextPage:
        """List recorded contexts that used all of these inputs, newest first.

        A page may have fewer contexts than the limit, or none, although more follow: read on while
        there is a ``next_cursor``.
        """
        return await self._store.records.find(
            oldest_first=order == "oldest", limit=limit, cursor=cursor, **filters
        )

    async def count_contexts(
        self,
        buckets: Buckets = 60,
        **filters: Unpack[SoughtContexts],
    ) -> ContextHistogram:
        """Count recorded contexts over time, by freshness status.

        The widths of buckets are round, so there may be fewer of them. If ``counted_from`` is not
        null, there are too many contexts to count all of them; ask for less time.
        """
        return await self._store.records.histogram(buckets=buckets, **filters)

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
