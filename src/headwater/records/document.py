"""A record or an outcome as one portable JSON document, which an independent verifier can check."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import msgspec

from headwater.core.canonical_json import JsonError, parse
from headwater.errors import RecordDocumentError
from headwater.model.kinds import RecordHash
from headwater.records.outcomes import OUTCOME_SPEC, OutcomeRecord
from headwater.records.record import SPEC, Disclosure, Record, Redaction, Sealed, Signature


class _OutcomeFields(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    outcome_id: str
    context_id: str
    record_hash: str
    outcome_hash: str
    core: str
    disclosures: tuple[Disclosure, ...] = ()
    signature: Signature | None = None
    redactions: tuple[Redaction, ...] = ()


class _RecordFields(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    context_id: str
    record_hash: str
    content_hash: str
    core: str
    disclosures: tuple[Disclosure, ...] = ()
    signature: Signature | None = None
    redactions: tuple[Redaction, ...] = ()
    outcomes: tuple[_OutcomeFields, ...] | msgspec.UnsetType = msgspec.UNSET
    """The documents of its outcomes; absent without any."""


class Documented(NamedTuple):
    """What a document has: a record with its outcomes, or one outcome alone."""

    sealed: Record | OutcomeRecord
    outcomes: tuple[OutcomeRecord, ...] = ()


def export(sealed: Record | OutcomeRecord, outcomes: Iterable[OutcomeRecord] = ()) -> bytes:
    """Return the document of a record and its outcomes, or of one outcome.

    ``core`` is the exact text that was hashed.
    """
    if isinstance(sealed, OutcomeRecord):
        return _formatted(_OutcomeFields(**_fields(sealed)))
    within = tuple(_OutcomeFields(**_fields(outcome)) for outcome in outcomes)
    return _formatted(_RecordFields(**_fields(sealed), outcomes=within or msgspec.UNSET))


def _fields(sealed: Sealed) -> dict[str, Any]:
    try:
        core = sealed.core.decode()
    except UnicodeDecodeError as error:
        raise RecordDocumentError(f"byte {error.start} of its core is not UTF-8") from error
    return msgspec.structs.asdict(sealed) | {"format": sealed.FORM.spec, "core": core}


def _formatted(document: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def outcome_document(outcome: OutcomeRecord) -> OutcomeDocument:
    """Return an outcome in the form of its document."""
    return msgspec.convert(_fields(outcome), OutcomeDocument, from_attributes=True)


def outcome_of(document: OutcomeDocument) -> OutcomeRecord:
    """Return the outcome of a document that was received."""
    return _outcome(msgspec.convert(document, _OutcomeFields, from_attributes=True))


def load(document: bytes | str) -> Record:
    """Parse the document of a record; its layout does not matter. `verify` checks the record."""
    record = load_all(document).sealed
    if isinstance(record, OutcomeRecord):
        raise RecordDocumentError(f"its format is {OUTCOME_SPEC!r}, not {SPEC!r}")
    return record


def load_all(document: bytes | str) -> Documented:
    """Parse the document of a record with its outcomes, or of one outcome."""
    try:
        tree = parse(document)
        if isinstance(tree, dict) and tree.get("format") == OUTCOME_SPEC:
            return Documented(_outcome(msgspec.convert(tree, _OutcomeFields)))
        fields = msgspec.convert(tree, _RecordFields)
    except (JsonError, msgspec.ValidationError) as error:
        raise RecordDocumentError(str(error)) from error
    outcomes = () if fields.outcomes is msgspec.UNSET else fields.outcomes
    known = _known(fields, SPEC)
    del known["outcomes"]
    return Documented(Record(**known), tuple(map(_outcome, outcomes)))


def _outcome(fields: _OutcomeFields) -> OutcomeRecord:
    return OutcomeRecord(**_known(fields, OUTCOME_SPEC))


def _known(fields: _RecordFields | _OutcomeFields, spec: str) -> dict[str, Any]:
    known = msgspec.structs.asdict(fields)
    if (format_name := known.pop("format")) != spec:
        raise RecordDocumentError(f"its format is {format_name!r}, not {spec!r}")
    return known | {"core": fields.core.encode()}


class OutcomeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An outcome as one document; ``core`` is the hashed text."""

    format: Literal["CRS-001-OUTCOME"]
    outcome_id: str
    context_id: str
    record_hash: RecordHash
    outcome_hash: RecordHash
    core: str
    disclosures: list[Disclosure]
    signature: Signature | None
    redactions: list[Redaction]


class OutcomeDocuments(msgspec.Struct, frozen=True):
    """The documents of the outcomes of a context, the oldest first."""

    outcomes: list[OutcomeDocument]


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
    outcomes: list[OutcomeDocument] | msgspec.UnsetType = msgspec.UNSET
