"""Records for tests of those who keep them."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256

from headwater.ports import StoredRecord
from headwater.records.ids import new_context_id

START = datetime(2026, 1, 1, tzinfo=UTC)


def record(
    core: bytes = b"{}",
    *,
    context_id: str | None = None,
    at: datetime = START,
    name: str = "support",
    freshness_status: str = "guaranteed",
    disclosures: bytes = b"[]",
) -> StoredRecord:
    """A record with a new id unless one is given; as in a true one, its core says it."""
    context_id = context_id or new_context_id()
    core = core + context_id.encode()
    return StoredRecord(
        context_id=context_id,
        record_hash=f"sha256:{sha256(core).hexdigest()}",
        content_hash=f"sha256:{sha256(b'text').hexdigest()}",
        name=name,
        created_at=at,
        freshness_status=freshness_status,
        core=core,
        disclosures=disclosures,
    )
