"""The audit log: who did which administrative action, when, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

import msgspec

from headwater.core.short_repr import short_repr

AuditOutcome = Literal["started", "done", "failed", "cancelled"]
"""How an action ended; ``started`` if it is running, or if its process died."""


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An administrative action; ``id`` is a UUIDv7 of the time it started at."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str = ""
    parameters: Mapping[str, Any] = {}
    outcome: AuditOutcome = "started"
    finished_at: datetime | None = None
    error: str | None = None
    """The type of the error that ended the action; messages may contain personal values."""

    __repr__ = short_repr("at", "actor", "action", "target", "outcome")


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Filters of audit entries, and the page; ``since`` is inclusive, ``before`` exclusive."""

    action: str | None = None
    actor: str | None = None
    since: datetime | None = None
    before: datetime | None = None
    cursor: str | None = None
    limit: int = 100


class AuditLog(Protocol):
    """Administrative actions, which can be added and never changed or removed.

    An entry whose append returned survives the death of every process, and all readers see it
    from then on. The database refuses to change or delete entries, and retention keeps them.
    """

    async def append(self, entry: AuditEntry) -> None:
        """Store an entry, or the outcome of a stored one with the same id.

        The first outcome other than ``started`` is kept. All other fields stay as they were first
        stored, so appending an entry again changes nothing.
        """

    async def entries(self, query: AuditQuery) -> list[AuditEntry]:
        """Return the entries that match all filters, newest first by ``at``, then by id.

        ``cursor`` is the id of the last entry of the previous page; entries appended meanwhile do
        not shift the pages. Raises InvalidInputError if it is unknown.
        """


def unknown_cursor(cursor: str) -> str:
    """Return the message for a cursor that is not the id of an entry."""
    return (
        f"no audit entry has the id {cursor!r}, so the next page cannot be found; pass the "
        "next_cursor of the previous page"
    )
