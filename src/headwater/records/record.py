"""A stored record: the bytes of the core, disclosures, signature and redactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class Disclosure(msgspec.Struct, frozen=True, gc=False):
    """Opens one commitment: its pointer in the core, its salt and its tagged value."""

    pointer: str
    salt: str
    value: Any

    def __repr__(self) -> str:
        return f"Disclosure({self.pointer!r})"


class Signature(msgspec.Struct, frozen=True):
    """The exact text of a signed statement about one record, and its signature."""

    statement: str
    signature: str


class Redaction(msgspec.Struct, frozen=True, kw_only=True):
    """A note that a disclosure was erased: when, why and by whom."""

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
        # Keeps values and salts out of logs and error reports.
        return f"Record({self.context_id!r}, {self.record_hash!r})"

    def private(self) -> Record:
        """Return the copy without disclosures: hashes and facts, without texts and values."""
        return msgspec.structs.replace(self, disclosures=())


class InnerContext(msgspec.Struct, frozen=True):
    """A context that was assembled inside another one, as the core of the other one names it."""

    context_id: str
    record_hash: str
    name: str


class _InnerContexts(msgspec.Struct, frozen=True):
    contexts: tuple[InnerContext, ...]


def inner_contexts(record: Record) -> Sequence[InnerContext]:
    """Return the contexts that were assembled inside this one; none if its core is unreadable."""
    core = core_fields(record.core, _InnerContexts)
    return () if core is None else core.contexts


def core_fields(core: bytes, kind: type[T]) -> T | None:
    """Return some fields of a core, or None if it cannot be read."""
    try:
        return msgspec.json.decode(core, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


encode_disclosures = msgspec.json.Encoder().encode
decode_disclosures = msgspec.json.Decoder(tuple[Disclosure, ...]).decode
encode_redactions = msgspec.json.Encoder().encode
decode_redactions = msgspec.json.Decoder(tuple[Redaction, ...]).decode


def hash_of(content: bytes) -> str:
    """Return the SHA-256 of content as records write it."""
    return f"sha256:{sha256(content).hexdigest()}"


def content_hash(text: str) -> str:
    """Return the hash of a context's final text."""
    return hash_of(text.encode())


def moment_text(moment: datetime) -> str:
    """Return a time as records write it: RFC 3339, UTC, microseconds."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def is_moment(text: str) -> bool:
    """Return True if a text is a time as records write it."""
    try:
        return moment_text(datetime.fromisoformat(text)) == text
    except (ValueError, OverflowError):
        return False
