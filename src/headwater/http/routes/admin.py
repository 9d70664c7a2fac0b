"""Routes for administrators: the audit log, events, versions, redaction."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.admin import (
    AuditPage,
    Copies,
    PointersBody,
    RedactBody,
)
from headwater.model.events import EventList
from headwater.model.kinds import (
    Cursor,
    EntityIdFilter,
    EventIdFilter,
    EventTypeFilter,
    Limit,
    Moment,
    RecordRef,
)
from headwater.records.document import RecordDocument, export
from headwater.store.feature_store import FeatureStore

Action = Annotated[str, Meta(description="The name of an action.", examples=["records.redact"])]
Actor = Annotated[str, Meta(description="The name of the key or user.", examples=["ops"])]


class Administration:
    """Repairs and changes a store, and tells who did so."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/audit-log", "admin", self.read_audit_log),
            Route("GET", "/v1/events", "admin", self.list_events),
            Route("POST", "/v1/record/{ref}/copies", "records", self.find_copies),
            Route(
                "POST", "/v1/record/{ref}/redact", "admin", self.redact, documents=RecordDocument
            ),
        ]

    async def read_audit_log(
        self,
        action: Action | None = None,
        actor: Actor | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> AuditPage:
        """List administrative actions, newest first: who did what, when, and how it ended."""
        return await self._store.audit_log(
            action=action, actor=actor, since=since, before=before, limit=limit, cursor=cursor
        )

    async def list_events(
        self,
        event_id: EventIdFilter | None = None,
        event_type: EventTypeFilter | None = None,
        entity_id: EntityIdFilter | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: Limit = 100,
    ) -> EventList:
        """List accepted events, newest first, whether or not they were handled."""
        return EventList(
            await self._store.bus.list(
                event_id=event_id,
                event_type=event_type,
                entity_id=entity_id,
                since=since,
                before=before,
                limit=limit,
            )
        )

    async def find_copies(self, ref: RecordRef, body: PointersBody) -> Copies:
        """Find where else values of a record occur, in it and in the contexts inside it."""
        return Copies(await self._store.records.copies(ref, *body.pointers))

    async def redact(self, ref: RecordRef, body: RedactBody) -> ApiResponse:
        """Erase values of a record permanently; its hash and signature stay valid."""
        record = await self._store.records.redact(
            ref, *body.pointers, reason=body.reason, by=body.by, everywhere=body.everywhere
        )
        return ApiResponse(export(record))
