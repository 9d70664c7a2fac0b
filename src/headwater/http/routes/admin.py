"""Routes for administrators: dead letters, consumer groups, events, versions, redaction, repair."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headwater.http.routing.responses import NO_CONTENT, ApiResponse
from headwater.http.routing.route import Route
from headwater.http.routing.streaming import ProgressResponse
from headwater.model.admin import (
    AuditBody,
    AuditPage,
    AuditReport,
    Copies,
    DryRun,
    ForgetBody,
    ForgetReport,
    GroupList,
    GroupName,
    LagList,
    PointersBody,
    PruneBody,
    PruneReport,
    RebuildBody,
    RebuildReport,
    RedactBody,
)
from headwater.model.catalog import Dropped, RenameBody, VersionList, VersionNumber
from headwater.model.events import EventList
from headwater.model.indexes import DroppedIndex
from headwater.model.kinds import (
    Cursor,
    EntityIdFilter,
    EventIdFilter,
    EventTypeFilter,
    FeatureName,
    IndexName,
    Limit,
    Moment,
    RecordRef,
)
from headwater.model.progress import NDJSON, ActionLine, ProgressStep
from headwater.records.document import RecordDocument, export
from headwater.store.feature_store import FeatureStore

Action = Annotated[str, Meta(description="The name of an action.", examples=["records.redact"])]
Actor = Annotated[str, Meta(description="The name of the key or user.", examples=["ops"])]


class Administration:
    """Repairs and changes a store, and tells who did so."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._private = store.settings.record.is_private

    def routes(self) -> list[Route]:
        feature = "/v1/features/{name}"
        return [
            Route("GET", "/v1/audit-log", "admin", self.read_audit_log),
            Route("GET", "/v1/lag", "metrics", self.read_lag),
            Route("GET", "/v1/groups", "metrics", self.list_groups),
            Route("DELETE", "/v1/groups/{name}", "admin", self.drop_group, status=NO_CONTENT),
            Route("GET", "/v1/events", "admin", self.list_events),
            Route("GET", feature + "/versions", "read", self.list_versions),
            Route("POST", feature + "/refresh", "admin", self.refresh, status=NO_CONTENT),
            Route("POST", feature + "/rename", "admin", self.rename, status=NO_CONTENT),
            Route("DELETE", feature, "admin", self.drop_feature),
            Route("DELETE", "/v1/indexes/{index}", "admin", self.drop_index),
            Route("POST", "/v1/record/{ref}/copies", "records", self.find_copies),
            Route(
                "POST", "/v1/record/{ref}/redact", "admin", self.redact, documents=RecordDocument
            ),
            Route(
                "POST",
                "/v1/rebuild",
                "admin",
                self.rebuild,
                returns=NDJSON,
                documents=ActionLine[ProgressStep, RebuildReport],
            ),
            Route(
                "POST",
                "/v1/audit",
                "admin",
                self.audit,
                returns=NDJSON,
                documents=ActionLine[ProgressStep, AuditReport],
            ),
            Route(
                "POST",
                "/v1/prune",
                "admin",
                self.prune,
                returns=NDJSON,
                documents=ActionLine[ProgressStep, PruneReport],
            ),
            Route(
                "POST",
                "/v1/forget",
                "admin",
                self.forget,
                returns=NDJSON,
                documents=ActionLine[ProgressStep, ForgetReport],
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

    async def read_lag(self) -> LagList:
        """Read the worker, the waiting events and the oldest of them, for each partition."""
        return LagList(await self._store.admin.lag())

    async def list_groups(self) -> GroupList:
        """List the consumer groups with their live workers and waiting events."""
        return GroupList(await self._store.admin.groups())

    async def drop_group(self, name: GroupName) -> None:
        """Forget a consumer group without live workers, so that it holds back no event."""
        await self._store.admin.drop_group(name)

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

    async def list_versions(self, name: FeatureName) -> VersionList:
        """List the versions of a feature, oldest first, with the number of their values."""
        return VersionList(await self._store.catalog.versions(name))

    async def refresh(self, name: FeatureName) -> None:
        """Queue a run of a scheduled feature, for the next free worker."""
        await self._store.admin.refresh(name)

    async def rename(self, name: FeatureName, body: RenameBody) -> None:
        """Rename a feature with all its values and its history."""
        await self._store.catalog.rename(name, body.new)

    async def drop_feature(
        self, name: FeatureName, *, version: VersionNumber | None = None, dry_run: DryRun = False
    ) -> Dropped:
        """Remove a feature with its values and history, or one version that is not served."""
        return await self._store.catalog.drop(name, version=version, dry_run=dry_run)

    async def drop_index(self, index: IndexName) -> DroppedIndex:
        """Remove an index with all its documents and past versions."""
        return DroppedIndex(index, await self._store.indexes.drop(index))

    async def find_copies(self, ref: RecordRef, body: PointersBody) -> Copies:
        """Find where else values of a record occur, in it and in the contexts inside it."""
        return Copies(await self._store.records.copies(ref, *body.pointers))

    async def redact(self, ref: RecordRef, body: RedactBody) -> ApiResponse:
        """Erase values of a record permanently; its hash and signature stay valid."""
        record = await self._store.records.redact(
            ref, *body.pointers, reason=body.reason, by=body.by, everywhere=body.everywhere
        )
        return ApiResponse(export(record))

    async def rebuild(self, body: RebuildBody) -> ProgressResponse:
        """Restore online values from history; the lines show the progress, then the result."""
        rebuild = self._store.admin.rebuild
        return ProgressResponse(
            lambda progress: rebuild(adopt=body.adopt, progress=progress), private=self._private
        )

    async def audit(self, body: AuditBody) -> ProgressResponse:
        """Compare online values with history; the lines show the progress, then the result."""
        audit = self._store.admin.audit
        return ProgressResponse(
            lambda progress: audit(limit=body.limit, records=body.records, progress=progress),
            private=self._private,
        )

    async def prune(self, body: PruneBody) -> ProgressResponse:
        """Remove old history, events and records, or count them; the last line has the result."""
        prune = self._store.admin.prune
        return ProgressResponse(
            lambda _: prune(
                history=body.history,
                events=body.events,
                records=body.records,
                dry_run=body.dry_run,
            ),
            private=self._private,
        )

    async def forget(self, body: ForgetBody) -> ProgressResponse:
        """Erase an entity for good, or count what it has; the last line has the result.

        Its values, history, events and dead letters are removed, and records of contexts that read
        it lose all values. Their hashes stay valid. Nothing of before brings it back, and new
        events are refused unless `allow_return` is true.
        """
        forget = self._store.admin.forget
        return await ProgressResponse(
            lambda _: forget(
                body.entity,
                body.entity_id,
                reason=body.reason,
                allow_return=body.allow_return,
                dry_run=body.dry_run,
            ),
            private=self._private,
        ).begun()
