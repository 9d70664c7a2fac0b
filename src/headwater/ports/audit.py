"""The audit log: who did which administrative action, when, and how it ended."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from headwater.model.admin import AuditEntry


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
