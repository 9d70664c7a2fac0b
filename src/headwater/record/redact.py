"""Redaction: one value is erased for good, and a note says so; the hash stays valid."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headwater.errors import RedactionError
from headwater.record.parts import Record, Redaction, moment_text


def redact(
    record: Record, pointer: str, *, at: datetime, reason: str, by: str | None = None
) -> Record:
    """The record without the disclosure at this pointer."""
    kept = tuple(item for item in record.disclosures if item.pointer != pointer)
    if len(kept) == len(record.disclosures):
        raise RedactionError(pointer, (item.pointer for item in record.disclosures))
    note = Redaction(pointer=pointer, redacted_at=moment_text(at), reason=reason, by=by)
    return msgspec.structs.replace(record, disclosures=kept, redactions=(*record.redactions, note))
