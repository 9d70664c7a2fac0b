"""The audit log of a store: write administrative actions, and read them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any

from headwater.engine.auditing import audited
from headwater.errors import InvalidInputError
from headwater.model.admin import AuditPage
from headwater.ports import AuditQuery
from headwater.store.runtime import Runtime

LARGEST_AUDIT_PAGE = 1_000


class AuditVerbs:
    """The part of ``FeatureStore`` that reads the audit log, and adds to it."""

    _runtime: Runtime

    async def audit_log(
        self,
        *,
        action: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return administrative actions, newest first: who did what, when, and how it ended.

        ``cursor`` is the ``next_cursor`` of the previous page.

        >>> await store.indexes.drop("docs")
        1
        >>> [entry] = (await store.audit_log(action="indexes.drop")).entries
        >>> entry.target, entry.outcome
        ('docs', 'done')
        """
        if not 1 <= limit <= LARGEST_AUDIT_PAGE:
            raise InvalidInputError(
                f"limit is {limit}; it must be between 1 and {LARGEST_AUDIT_PAGE}"
            )
        for name, moment in {"since": since, "before": before}.items():
            if moment is not None and moment.tzinfo is None:
                raise InvalidInputError(f"{name} has no time zone; pass an aware datetime")
        query = AuditQuery(
            action=action, actor=actor, since=since, before=before, cursor=cursor, limit=limit + 1
        )
        entries = await (await self._runtime.open()).backends.audit_log.entries(query)
        page = entries[:limit]
        return AuditPage(
            entries=page, next_cursor=page[-1].id if len(entries) > len(page) else None
        )

    def audited(
        self, action: str, target: str = "", **parameters: Any
    ) -> AbstractAsyncContextManager[None]:
        """Log the code inside as an administrative action of the current caller.

        The store's own verbs log themselves. If the action cannot be logged, it does not start.

        >>> async with store.audited("keys.rotate", "billing"):
        ...     pass
        >>> (await store.audit_log(action="keys.rotate")).entries[0].outcome
        'done'
        """
        return self._audited(action, target, parameters)

    @asynccontextmanager
    async def _audited(
        self, action: str, target: str, parameters: dict[str, Any]
    ) -> AsyncIterator[None]:
        async with audited(await self._runtime.open(), action, target, **parameters):
            yield
