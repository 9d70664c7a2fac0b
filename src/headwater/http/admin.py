"""Routes for administrators: the audit log."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headwater.api.kinds import Cursor, Limit, Moment
from headwater.http.routes import Route
from headwater.store.audit_log import AuditPage
from headwater.store.feature_store import FeatureStore

Action = Annotated[str, Meta(description="The name of an action.", examples=["records.redact"])]
Actor = Annotated[str, Meta(description="The name of the key or user.", examples=["ops"])]


class Administration:
    """Reads the audit log."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/audit-log", "admin", self.read_audit_log)]

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
