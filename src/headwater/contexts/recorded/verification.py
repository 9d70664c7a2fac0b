"""Proof: a record as it lies in the log, read, and what holds of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from headwater.errors import ConfigError, DamagedRecordError, RecordValueError, SignatureError
from headwater.ports import StoredRecord
from headwater.records.core import Core
from headwater.records.record import (
    Disclosure,
    Record,
    Redaction,
    Signature,
    decode_disclosures,
    decode_redactions,
    hash_of,
)
from headwater.records.sealing import open_core
from headwater.records.signing import parse_keyring, statement_of
from headwater.records.verify import Check, VerificationReport, verify
from headwater.settings.schema import Settings

_decode_signature = msgspec.json.Decoder(Signature).decode


def check_signing(settings: Settings) -> None:
    """Refuses keys that are none, and to go without where every record must be signed.

    Public keys are enough to open a store: they read and verify, and only a new record needs more.
    """
    keyring = parse_keyring(settings.signing_key)
    if settings.signature_mode == "required" and not keyring.keys:
        raise ConfigError(
            "HEADWATER_SIGNATURE_MODE is 'required' and there is no key; set "
            "HEADWATER_SIGNING_KEY, for example to 'march:' and the output of openssl rand -hex 32"
        )


def decode_record(stored: StoredRecord) -> Record:
    """The record of which every part can be read."""
    readings = _readings(stored)
    for part, reading in readings._asdict().items():
        if reading.problem is not None:
            raise DamagedRecordError(stored.context_id, part, reading.problem)
    return _record(stored, readings)


def load_record(stored: StoredRecord) -> tuple[Record, Core]:
    """The record and what it says, of which nothing was altered since it got its hash."""
    record = decode_record(stored)
    for part, problem in _alterations(record):
        raise DamagedRecordError(record.context_id, part, problem)
    try:
        core = open_core(record)
    except RecordValueError as error:
        part, said = ("disclosures", str(error)) if error.pointer else ("core", error.problem)
        raise DamagedRecordError(record.context_id, part, said) from error
    if (core.context_id, core.output.content_hash) != (record.context_id, record.content_hash):
        said = f"it is that of context {core.context_id} with {core.output.content_hash}"
        raise DamagedRecordError(record.context_id, "core", said)
    return record, core


def _alterations(record: Record) -> Iterator[tuple[str, str]]:
    actual = hash_of(record.core)
    if actual != record.record_hash:
        yield "core", f"it hashes to {actual} and not to record_hash {record.record_hash}"
    if record.signature is not None:
        try:
            statement_of(record.signature)
        except SignatureError as error:
            yield "signature", str(error)


def verify_record(
    stored: StoredRecord, settings: Settings, *, expect: str | None, signed: bool = False
) -> VerificationReport:
    """What holds of a record, which must have that id or hash if one is expected."""
    readings = _readings(stored)
    report = verify(
        _record(stored, readings),
        parse_keyring(settings.signing_key),
        expect=expect,
        signed=signed or settings.signature_mode == "required",
    )
    return _with_problems(report, stored, readings)


class _Part(NamedTuple):
    """A part of a stored record as it was read, or why it cannot be."""

    value: Any
    problem: str | None = None


class _Readings(NamedTuple):
    """A core and the parts that lie beside it."""

    core: _Part
    disclosures: _Part
    signature: _Part
    redactions: _Part


def _readings(stored: StoredRecord) -> _Readings:
    return _Readings(
        _read(bytes, stored.core, b""),
        _read(decode_disclosures, stored.disclosures, ()),
        _Part(None)
        if stored.signature is None
        else _read(_decode_signature, stored.signature, None),
        _read(decode_redactions, stored.redactions, ()),
    )


def _read(decode: Callable[[bytes], Any], raw: bytes, otherwise: Any) -> _Part:
    # SQLite keeps what it is given in any column, also a text where bytes belong.
    if type(raw) is not bytes:
        return _Part(otherwise, f"it is stored as {type(raw).__name__}, not as bytes")
    try:
        return _Part(decode(raw))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return _Part(otherwise, str(error))


def _record(stored: StoredRecord, readings: _Readings) -> Record:
    disclosures: tuple[Disclosure, ...] = readings.disclosures.value
    redactions: tuple[Redaction, ...] = readings.redactions.value
    return Record(
        context_id=stored.context_id,
        record_hash=stored.record_hash,
        content_hash=stored.content_hash,
        core=readings.core.value,
        disclosures=disclosures,
        signature=readings.signature.value,
        redactions=redactions,
    )


def _with_problems(
    report: VerificationReport, stored: StoredRecord, readings: _Readings
) -> VerificationReport:
    """The report, and in it what is wrong with the log's own columns."""
    problems = {
        "hash": _unreadable("core", readings.core)
        + list(_column_problems(stored, readings.core.value)),
        "signature": _unreadable("signature", readings.signature),
        "disclosures": _unreadable("disclosures", readings.disclosures)
        + _unreadable("redactions", readings.redactions),
    }
    checks = tuple(_broken(check, problems.get(check.check, [])) for check in report.checks)
    return msgspec.structs.replace(report, checks=checks)


def _unreadable(part: str, reading: _Part) -> list[str]:
    return [] if reading.problem is None else [f"the {part} cannot be read: {reading.problem}"]


def _broken(check: Check, problems: Sequence[str]) -> Check:
    if not problems:
        return check
    said = [check.detail] if check.ok is False else []
    return Check(check.check, ok=False, detail="; ".join([*said, *problems]), fault="altered")


class _Listed(msgspec.Struct, frozen=True):
    """What a core says of the columns by which the log lists it."""

    class Named(msgspec.Struct, frozen=True):
        name: str

    class Fresh(msgspec.Struct, frozen=True):
        status: str

    created_at: datetime
    context: Named
    freshness: Fresh


def _column_problems(stored: StoredRecord, raw: bytes) -> Iterator[str]:
    try:
        core = msgspec.json.decode(raw, type=_Listed)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return  # that the core cannot be read, the report says already
    for column, listed, said in (
        ("name", stored.name, core.context.name),
        ("created_at", stored.created_at, core.created_at),
        ("freshness_status", stored.freshness_status, core.freshness.status),
    ):
        if listed != said:
            yield f"the log lists it with {column} {listed}, but the core says {said}"
