"""Decoding and verifying records as they are stored in the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from headwater.errors import ConfigError, DamagedRecordError
from headwater.model.contexts import VerificationReport, broken
from headwater.ports import StoredOutcome, StoredRecord
from headwater.records.core import Core
from headwater.records.outcomes import OutcomeRecord
from headwater.records.record import (
    Record,
    Signature,
    core_fields,
    decode_disclosures,
    decode_redactions,
    hash_of,
)
from headwater.records.signing import parse_keyring
from headwater.records.verify import checked_core, verify_record
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
    return _record(stored, _decoded(stored, stored.context_id))


def decode_outcome(stored: StoredOutcome) -> OutcomeRecord:
    """Return the outcome; raise `DamagedRecordError` if it cannot be read or was altered."""
    parts = _decoded(stored, stored.outcome_id)
    if hash_of(stored.core) != stored.outcome_hash:
        raise DamagedRecordError(stored.outcome_id, "core", "its hash is not that of the outcome")
    return OutcomeRecord(
        outcome_id=stored.outcome_id,
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        outcome_hash=stored.outcome_hash,
        **{name: part.value for name, part in parts._asdict().items()},
    )


def _decoded(stored: StoredRecord | StoredOutcome, stored_id: str) -> _Parts:
    """Return the parts; raise `DamagedRecordError` if one of them cannot be read."""
    parts = _parts(stored)
    for name, part in parts._asdict().items():
        if part.problem is not None:
            raise DamagedRecordError(stored_id, name, part.problem)
    return parts


def load_record(stored: StoredRecord) -> tuple[Record, Core]:
    """Return the record and its opened core; raise `DamagedRecordError` if it was altered."""
    record = decode_record(stored)
    return record, checked_core(record)


def verify_stored(
    stored: StoredRecord, settings: Settings, *, expect: str | None, signed: bool | None = None
) -> VerificationReport:
    """Verify a stored record; `expect` is the id or hash that it must have."""
    parts = _parts(stored)
    report = verify_record(
        _record(stored, parts),
        settings.signing_key,
        expect=expect,
        signed=signed,
    )
    return _with_problems(report, stored, parts)


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


def _with_problems(
    report: VerificationReport, stored: StoredRecord, parts: _Parts
) -> VerificationReport:
    """Return the report, extended by the problems of the columns of the log."""
    problems = {
        "hash": _unreadable("core", parts.core) + list(_column_problems(stored, parts.core.value)),
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
    for column, listed, recorded in (
        ("name", stored.name, core.context.name),
        ("created_at", stored.created_at, core.created_at),
        ("freshness_status", stored.freshness_status, core.freshness.status),
    ):
        if listed != recorded:
            yield f"the log lists it with {column} {listed}, but the core says {recorded}"
