"""A record as one portable JSON document, which an independent verifier can check."""

from __future__ import annotations

from typing import Literal

import msgspec

from headwater.core.canonical_json import JsonError, parse
from headwater.errors import RecordDocumentError
from headwater.model.kinds import RecordHash
from headwater.records.record import SPEC, Disclosure, Record, Redaction, Signature


class _Document(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    context_id: str
    record_hash: str
    content_hash: str
    core: str
    disclosures: tuple[Disclosure, ...] = ()
    signature: Signature | None = None
    redactions: tuple[Redaction, ...] = ()


def export(record: Record) -> bytes:
    """Return the document of a record; its ``core`` is the exact text that was hashed."""
    try:
        core = record.core.decode()
    except UnicodeDecodeError as error:
        raise RecordDocumentError(f"byte {error.start} of its core is not UTF-8") from error
    document = _Document(**msgspec.structs.asdict(record) | {"format": SPEC, "core": core})
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def load(document: bytes | str) -> Record:
    """Parse a document; its layout does not matter. `verify` checks the record."""
    try:
        fields = msgspec.structs.asdict(msgspec.convert(parse(document), _Document))
    except (JsonError, msgspec.ValidationError) as error:
        raise RecordDocumentError(str(error)) from error
    if (format_name := fields.pop("format")) != SPEC:
        raise RecordDocumentError(f"its format is {format_name!r}, not {SPEC!r}")
    return Record(**fields | {"core": fields["core"].encode()})


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
