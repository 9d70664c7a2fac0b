"""The audit log: an entry before an administrative action starts, and its outcome after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headwater.core.logging import log
from headwater.errors import BackendError, InvalidInputError
from headwater.model.admin import AuditEntry, AuditOutcome, AuditPage
from headwater.model.callers import current_actor
from headwater.model.values import LONGEST_NAME, new_id
from headwater.ports import AuditQuery

if TYPE_CHECKING:
    from headwater.features.services import Services


LARGEST_AUDIT_PAGE = 1_000


class AuditReader:
    """The entries of the audit log of an open store."""

    def __init__(self, services: Services) -> None:
        self._stored = services.backends.audit_log

    async def page(
        self, *, since: datetime | None, before: datetime | None, limit: int, **query: Any
    ) -> AuditPage:
        """Return a page of the entries of an `AuditQuery`."""
        if not 1 <= limit <= LARGEST_AUDIT_PAGE:
            raise InvalidInputError(
                f"limit is {limit}; it must be between 1 and {LARGEST_AUDIT_PAGE}"
            )
        for name, moment in {"since": since, "before": before}.items():
            if moment is not None and moment.tzinfo is None:
                raise InvalidInputError(f"{name} has no time zone; pass an aware datetime")
        entries = await self._stored.entries(
            AuditQuery(since=since, before=before, limit=limit + 1, **query)
        )
        page = entries[:limit]
        return AuditPage(
            entries=page, next_cursor=page[-1].id if len(entries) > len(page) else None
        )


@asynccontextmanager
async def audited(
    services: Services, action: str, target: str = "", **parameters: Any
) -> AsyncIterator[None]:
    """Log an action before it starts, and its outcome; raise if it cannot be logged.

    Parameters must not contain personal values: the log cannot be redacted.
    """
    entry = AuditEntry(
        id=new_id(),
        at=services.clock.now(),
        actor=_storable_text(current_actor()),
        action=action,
        target=_storable_text(target),
        parameters={name: _storable(value) for name, value in parameters.items()},
    )
    await services.backends.audit_log.append(entry)
    try:
        yield
    except asyncio.CancelledError:
        await _finish(services, entry, "cancelled")
        raise
    except Exception as error:
        await _finish(services, entry, "failed", type(error).__name__)
        raise
    await _finish(services, entry, "done")


async def _finish(
    services: Services, entry: AuditEntry, outcome: AuditOutcome, error: str | None = None
) -> None:
    """Add the outcome; the action itself is in the log already and cannot be undone."""
    ended = replace(entry, outcome=outcome, finished_at=services.clock.now(), error=error)
    try:
        await services.backends.audit_log.append(ended)
    except BackendError as problem:
        log.error(
            "audit outcome not stored",
            action=entry.action,
            id=entry.id,
            outcome=outcome,
            error=str(problem),
        )


def _storable(value: object) -> Any:
    """Return a value as JSON, with texts that every database can store."""
    match msgspec.to_builtins(value):
        case str() as text:
            return _storable_text(text)
        case dict() as fields:
            return {name: _storable(field) for name, field in fields.items()}
        case list() | tuple() as items:
            return [_storable(item) for item in items]
        case other:
            return other


def _storable_text(text: str) -> str:
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")[:LONGEST_NAME]
