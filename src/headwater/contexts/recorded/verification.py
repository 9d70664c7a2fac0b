"""Decoding and verifying records as they are stored in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from headwater.errors import (
    ConfigError,
    DamagedRecordError,
    RecordValueError,
    SignatureError,
)
from headwater.model.contexts import VerificationReport, broken
from headwater.model.outcomes import Outcome
from headwater.ports import StoredOutcome, StoredRecord
from headwater.records.core import Core
from headwater.records.outcomes import OutcomeRecord, outcome_view
from headwater.records.record import (
    Record,
    Signature,
    core_fields,
    decode_disclosures,
    decode_redactions,
    hash_of,
)
from headwater.records.signing import parse_keyring
from headwater.records.verify import checked_core, verify_outcome, verify_record
from headwater.settings.schema import Settings

_decode_signature = msgspec.json.Decoder(Signature).decode


def check_signing(settings: Settings) -> None:
    """Raise for invalid keys, and for missing keys if every record must be signed.

    Public keys are enough to open a store for reading; only new records need a key that signs.
    """
    keyring = parse_keyring(settings.signing_key)
    if settings.signature_mode == "required" and not keyring.keys:
        raise ConfigError(
            "HEADWATER_SIGNATURE_MODE is 'required', but no key is configured; set "
            "HEADWATER_SIGNING_KEY to the output of `headwater keys signing generate KEY_ID`"
        )


def decode_record(stored: StoredRecord) -> Record:
    """Return the record; raise `DamagedRecordError` if a part of it cannot be read."""
    return _record(stored, _decoded(stored))


def decode_outcome(stored: StoredOutcome) -> OutcomeRecord:
    """Return the outcome; raise `DamagedRecordError` if a part of it cannot be read."""
    return _outcome(stored, _decoded(stored, f" of outcome {stored.outcome_id}"))


def view_outcome(stored: StoredOutcome) -> Outcome:
    """Return an outcome to read; raise `DamagedRecordError` if it was altered."""
    outcome = decode_outcome(stored)
    if hash_of(outcome.core) != outcome.outcome_hash:
        part, problem = f"core of outcome {stored.outcome_id}", f"not {stored.outcome_hash}"
        raise DamagedRecordError(stored.context_id, part, f"its hash is {problem}")
    try:
        return outcome_view(outcome)
    except (RecordValueError, SignatureError, msgspec.ValidationError) as error:
        part = f"values of outcome {stored.outcome_id}"
        raise DamagedRecordError(stored.context_id, part, str(error)) from error


def _decoded(stored: StoredRecord | StoredOutcome, of: str = "") -> _Parts:
    """Return the parts; raise `DamagedRecordError` if one of them cannot be read."""
    parts = _parts(stored)
    for name, part in parts._asdict().items():
        if part.problem is not None:
            raise DamagedRecordError(stored.context_id, f"{name}{of}", part.problem)
    return parts


def load_record(stored: StoredRecord) -> tuple[Record, Core]:
    """Return the record and its opened core; raise `DamagedRecordError` if it was altered."""
    record = decode_record(stored)
    return record, checked_core(record)


def verify_stored(
    stored: StoredRecord,
    settings: Settings,
    outcomes: Sequence[StoredOutcome] = (),
    *,
    expect: str | None,
    signed: bool | None = None,
) -> VerificationReport:
    """Verify a stored record with its outcomes; `expect` is the id or hash that it must have."""
    parts, keys = _parts(stored), settings.signing_key
    record = _record(stored, parts)
    report = verify_record(record, keys, expect=expect, signed=signed)
    report = _with_problems(report, parts, _column_problems(stored, parts.core.value))
    reports = []
    for outcome in outcomes:
        parts = _parts(outcome)
        checked = verify_outcome(_outcome(outcome, parts), keys, of=record, signed=signed)
        problems = _outcome_problems(outcome, parts.core.value)
        reports.append(_with_problems(checked, parts, problems))
    return msgspec.structs.replace(report, outcomes=tuple(reports))


class _Part(NamedTuple):
    """A decoded part of a stored record, or the problem that prevented decoding."""

    value: Any
    problem: str | None = None


class _Parts(NamedTuple):
    """The parts of a stored record."""

    core: _Part
    disclosures: _Part
    signature: _Part
    redactions: _Part


def _parts(stored: StoredRecord | StoredOutcome) -> _Parts:
    return _Parts(
        _decode(bytes, stored.core, b""),
        _decode(decode_disclosures, stored.disclosures, ()),
        _Part(None)
        if stored.signature is None
        else _decode(_decode_signature, stored.signature, None),
        _decode(decode_redactions, stored.redactions, ()),
    )


def _decode(decode: Callable[[bytes], Any], raw: bytes, default: Any) -> _Part:
    # SQLite accepts any type in any column, so a column may hold text instead of bytes.
    if type(raw) is not bytes:
        return _Part(default, f"it is stored as {type(raw).__name__}, not as bytes")
    try:
        return _Part(decode(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _Part(default, str(error))


def _record(stored: StoredRecord, parts: _Parts) -> Record:
    return Record(
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        content_hash=stored.content_hash,
        core=parts.core.value,
        disclosures=parts.disclosures.value,
        signature=parts.signature.value,
        redactions=parts.redactions.value,
    )


def _outcome(stored: StoredOutcome, parts: _Parts) -> OutcomeRecord:
    return OutcomeRecord(
        outcome_id=stored.outcome_id,
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        outcome_hash=stored.outcome_hash,
        **{name: part.value for name, part in parts._asdict().items()},
    )


def _with_problems(
    report: VerificationReport, parts: _Parts, columns: Iterable[str]
) -> VerificationReport:
    """Return the report, extended by the problems of the columns of the log."""
    problems = {
        "hash": [*_unreadable("core", parts.core), *columns],
        "signature": _unreadable("signature", parts.signature),
        "disclosures": _unreadable("disclosures", parts.disclosures)
        + _unreadable("redactions", parts.redactions),
    }
    checks = list(report.checks)
    for place, check in enumerate(checks):
        if details := problems.get(check.check):
            details = [check.detail, *details] if check.ok is False else details
            checks[place] = broken(check.check, "; ".join(details))
    return msgspec.structs.replace(report, checks=tuple(checks))


def _unreadable(name: str, part: _Part) -> list[str]:
    return [] if part.problem is None else [f"the {name} cannot be read: {part.problem}"]


class _Listed(msgspec.Struct, frozen=True):
    """The fields of a core that are also columns of the log."""

    class ContextName(msgspec.Struct, frozen=True):
        name: str

    class Fresh(msgspec.Struct, frozen=True):
        status: str

    created_at: datetime
    context: ContextName
    freshness: Fresh


def _column_problems(stored: StoredRecord, raw: bytes) -> Iterator[str]:
    core = core_fields(raw, _Listed)
    if core is None:
        return  # the report already says that the core is unreadable
    yield from _other_columns(
        ("name", stored.name, core.context.name),
        ("created_at", stored.created_at, core.created_at),
        ("freshness_status", stored.freshness_status, core.freshness.status),
    )


class _ListedOutcome(msgspec.Struct, frozen=True):
    """The fields of an outcome's core that are also columns of the log."""

    class Score(msgspec.Struct, frozen=True):
        name: str | None = None
        value: str | None = None
        flag: bool | None = None

    class Response(msgspec.Struct, frozen=True):
        model: str | None = None
        model_asked: str | None = None
        error_type: str | None = None

    kind: str
    at: datetime
    score: Score = Score()
    response: Response = Response()


def _outcome_problems(stored: StoredOutcome, raw: bytes) -> Iterator[str]:
    core = core_fields(raw, _ListedOutcome)
    if core is None:
        return  # the report already says that the core is unreadable
    score, response = core.score, core.response
    yield from _other_columns(
        ("kind", stored.kind, core.kind),
        ("at", stored.at, core.at),
        ("name", stored.name, score.name),
        ("value", stored.value, _number(score.value)),
        ("flag", stored.flag, score.flag),
        ("model", stored.model, response.model or response.model_asked),
        ("error_type", stored.error_type, response.error_type),
    )


def _number(text: str | None) -> float | str | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return text  # it was altered


def _other_columns(*columns: tuple[str, Any, Any]) -> Iterator[str]:
    for column, listed, recorded in columns:
        if listed != recorded:
            yield f"the log lists it with {column} {listed}, but the core says {recorded}"
