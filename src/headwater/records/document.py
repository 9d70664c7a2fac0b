"""A record as one portable JSON document, which is all that a verifier elsewhere needs."""

from __future__ import annotations

import msgspec

from headwater.core.canonical_json import JsonError, parse
from headwater.errors import RecordDocumentError
from headwater.records.core import SPEC
from headwater.records.record import Disclosure, Record, Redaction, Signature


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
    """The document of a record; the core stands in it as the exact text that was hashed."""
    try:
        core = record.core.decode()
    except UnicodeDecodeError as error:
        raise RecordDocumentError(f"byte {error.start} of its core is not UTF-8") from error
    document = _Document(
        format=SPEC,
        context_id=record.context_id,
        record_hash=record.record_hash,
        content_hash=record.content_hash,
        core=core,
        disclosures=record.disclosures,
        signature=record.signature,
        redactions=record.redactions,
    )
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def load(document: bytes | str) -> Record:
    """The record of a document, however it is laid out; `verify` says whether it holds."""
    try:
        read = msgspec.convert(parse(document), _Document)
    except (JsonError, msgspec.ValidationError) as error:
        raise RecordDocumentError(str(error)) from error
    if read.format != SPEC:
        raise RecordDocumentError(f"its format is {read.format!r}, not {SPEC!r}")
    return Record(
        context_id=read.context_id,
        record_hash=read.record_hash,
        content_hash=read.content_hash,
        core=read.core.encode(),
        disclosures=read.disclosures,
        signature=read.signature,
        redactions=read.redactions,
    )
