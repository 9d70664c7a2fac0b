"""A record at rest: the core's bytes and what lies beside them."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import msgspec


class Disclosure(msgspec.Struct, frozen=True, gc=False):
    """Opens one commitment: where it stands in the core, its salt and its tagged value."""

    pointer: str
    salt: str
    value: Any

    def __repr__(self) -> str:
        return f"Disclosure({self.pointer!r})"


class Signature(msgspec.Struct, frozen=True):
    """A statement about one record, as the exact text that was signed, and its signature."""

    statement: str
    signature: str


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """Says that a disclosure was erased, when, why and by whom."""

    pointer: str
    redacted_at: str
    reason: str
    by: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed record; a copy without disclosures, or with fewer, has the same core and hash."""

    context_id: str
    record_hash: str
    content_hash: str
    core: bytes
    disclosures: tuple[Disclosure, ...] = ()
    signature: Signature | None = None
    redactions: tuple[Redaction, ...] = ()

    def __repr__(self) -> str:
        # Logs and error reports print what they are given: values and salts stay out of them.
        return f"Record({self.context_id!r}, {self.record_hash!r})"

    def private(self) -> Record:
        """The copy in which no text and no value stands in clear."""
        return msgspec.structs.replace(self, disclosures=())


encode_disclosures = msgspec.json.Encoder().encode
decode_disclosures = msgspec.json.Decoder(tuple[Disclosure, ...]).decode
encode_redactions = msgspec.json.Encoder().encode
decode_redactions = msgspec.json.Decoder(tuple[Redaction, ...]).decode


def hash_of(content: bytes) -> str:
    """A hash as records write it."""
    return f"sha256:{sha256(content).hexdigest()}"


def content_hash(text: str) -> str:
    """The hash of a context's final text."""
    return hash_of(text.encode())


def moment_text(moment: datetime) -> str:
    """A moment as records write it: RFC 3339, UTC, microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def is_moment(text: str) -> bool:
    """Says whether a text is a moment as records write it."""
    try:
        return moment_text(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False
