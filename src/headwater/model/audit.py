"""The audit log: administrative actions, with actor and outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

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


class AuditPage(msgspec.Struct, frozen=True, kw_only=True):
    """Audit entries, the newest first; `next_cursor` is None on the last page."""

    entries: Sequence[AuditEntry]
    next_cursor: str | None

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<AuditPage entries={len(self.entries)}, {more}>"
