"""The body of the route that reads a record."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.api.kinds import RecordHash
from headwater.records.record import Disclosure, Redaction, Signature


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A record as one document; ``core`` is the hashed text."""

    format: Literal["CRS-001"]
    context_id: str
    record_hash: RecordHash
    content_hash: RecordHash
    core: str
    disclosures: list[Disclosure]
    signature: Signature | None
    redactions: list[Redaction]
