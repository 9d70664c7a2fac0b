"""What is sealed: the bytes of a core, disclosures, signature and redactions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

import msgspec

SPEC = "CRS-001"
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


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A signed statement: which key signed what, when and how."""

    spec: str
    sealed_hash: str
    sealed_id: str
    signed_at: str
    key_id: str
    algorithm: str


class RecordStatement(
    Statement,
    frozen=True,
    kw_only=True,
    rename={"sealed_hash": "record_hash", "sealed_id": "context_id"},
):
    """The signed statement about a record."""

    sealed_hash: str
    sealed_id: str


class Form(NamedTuple):
    """The names of one kind of sealed core: in its bytes, its statement and its reports."""

    noun: str
    described: str
    spec: str
    hash_name: str
    id_name: str
    statement: type[Statement]

    @property
    def statement_spec(self) -> str:
        """The `spec` of its signed statement."""
        return f"{self.spec}-SIG"


class Sealed(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed core; a copy without disclosures, or with fewer, has the same core and hash."""

    FORM: ClassVar[Form]
    core: bytes
    disclosures: tuple[Disclosure, ...] = ()
    signature: Signature | None = None
    redactions: tuple[Redaction, ...] = ()

    def __repr__(self) -> str:
        # Keeps values and salts out of logs and error reports.
        return f"{type(self).__name__}({self.sealed_id!r}, {self.sealed_hash!r})"

    @property
    def sealed_id(self) -> str:
        """Its id, which its core has too."""
        raise NotImplementedError

    @property
    def sealed_hash(self) -> str:
        """The hash of its core."""
        raise NotImplementedError

    def made_at(self) -> datetime | None:
        """Return when it was made, or None if its core cannot be read."""
        raise NotImplementedError

    def private(self) -> Self:
        """Return the copy without disclosures: hashes and facts, without texts and values."""
        return msgspec.structs.replace(self, disclosures=())


Moment = Annotated[datetime, msgspec.Meta(tz=True)]


class _Created(msgspec.Struct, frozen=True):
    created_at: Moment


class Record(Sealed, frozen=True, kw_only=True):
    """A sealed record of a context."""

    FORM: ClassVar[Form] = Form(
        "record", "a record", SPEC, "record_hash", "context_id", RecordStatement
    )
    context_id: str
    record_hash: str
    content_hash: str

    @property
    def sealed_id(self) -> str:
        return self.context_id

    @property
    def sealed_hash(self) -> str:
        return self.record_hash

    def made_at(self) -> datetime | None:
        core = core_fields(self.core, _Created)
        return None if core is None else core.created_at


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
