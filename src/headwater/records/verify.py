"""Verification: a ladder of checks, each of which holds, is broken or is not possible.

The core is hashed as it is and never written anew from a schema, so that a record holds for as long
as its bytes do, whatever fields later versions add.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from headwater.core.canonical_json import JsonError, canonical, from_base64, parse
from headwater.errors import SignatureError
from headwater.records.core import SPEC, Commitment
from headwater.records.ids import spelled
from headwater.records.record import (
    Disclosure,
    Record,
    Redaction,
    Signature,
    content_hash,
    hash_of,
    is_moment,
    moment_text,
)
from headwater.records.sealing import ALTERED, commitments, opens
from headwater.records.signing import STATEMENT_SPEC, Key, Keyring, Statement, statement_of

CheckName = Literal["hash", "signature", "disclosures", "content", "reassembly"]
Fault = Literal["altered", "another", "unsigned", "unchecked"]
NO_KEYS = Keyring()
CLOCKS_DIFFER = timedelta(minutes=10)
"""By how much the clocks of two hosts may, of which one records and the other redacts."""
_UNOPENED = "what is disclosed does not open its commitment"
# Of a record that is not altered itself, a verdict says what else was asked of it.
_UNMET: dict[Fault, str] = {
    "another": "It is not the record that was expected.",
    "unsigned": "It is not signed.",
    "unchecked": "Its signature could not be checked.",
}


class Check(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rung: whether it holds, or None where it cannot be checked, and why.

    A rung that fails has a fault: something was altered, or what was asked for is not there.
    """

    check: CheckName
    ok: bool | None
    detail: str
    fault: Fault | None = None


class VerificationReport(msgspec.Struct, frozen=True):
    """The whole ladder, and whether the record bears a signature at all."""

    checks: tuple[Check, ...]
    signed: bool

    @property
    def ok(self) -> bool:
        """Says whether nothing is broken, and everything that was asked for is there."""
        return all(check.ok is not False for check in self.checks)

    @property
    def verdict(self) -> str:
        """What it comes down to, in a sentence or two."""
        faults = {check.fault for check in self.checks if check.ok is False}
        if faults - _UNMET.keys():
            return "This record is broken."
        if faults:
            return " ".join(said for fault, said in _UNMET.items() if fault in faults)
        if self.of("signature").ok:
            return "Nothing is broken."
        unproved = "its signature was not checked" if self.signed else "it is not signed"
        return f"Nothing is broken, but {unproved}."

    def of(self, name: CheckName) -> Check:
        """One rung by name."""
        return next(check for check in self.checks if check.check == name)


def _holds(name: CheckName, detail: str) -> Check:
    return Check(name, ok=True, detail=detail)


def _broken(name: CheckName, detail: str, fault: Fault = "altered") -> Check:
    return Check(name, ok=False, detail=detail, fault=fault)


def _open(name: CheckName, detail: str) -> Check:
    return Check(name, ok=None, detail=detail)


class _Item(msgspec.Struct, frozen=True):
    content: Commitment
    decision: str
    emitted: Commitment | None = None


class _Policy(msgspec.Struct, frozen=True):
    separator: str


class _Output(msgspec.Struct, frozen=True):
    content: Commitment
    content_hash: str


class _Outline(msgspec.Struct, frozen=True):
    """The few fields of a core that verification itself reads."""

    spec: str
    context_id: str
    created_at: str
    policy: _Policy
    items: tuple[_Item, ...]
    output: _Output


class _Reading(msgspec.Struct, frozen=True):
    """A core as it was read; one that cannot be read has a problem and no outline."""

    record_hash: str
    outline: _Outline | None = None
    commitments: dict[str, str] = {}
    problem: str | None = None


def verify(
    record: Record,
    keyring: Keyring = NO_KEYS,
    *,
    expect: str | None = None,
    signed: bool = False,
) -> VerificationReport:
    """Says what holds of a record and names what is broken.

    `expect` is the record hash or the context id it was asked for by, in any spelling; `signed`
    asks for a signature that a key of the keyring made, and takes one that cannot be checked for
    none.
    """
    reading = _read(record.core)
    opened, disclosures = _check_disclosures(record, reading)
    return VerificationReport(
        (
            _check_hash(record, reading, expect),
            _check_signature(record, reading, keyring, signed=signed),
            disclosures,
            _check_content(record, reading, opened),
            _check_reassembly(record, reading, opened),
        ),
        signed=record.signature is not None,
    )


def _read(core: bytes) -> _Reading:
    record_hash = hash_of(core)
    try:
        tree = parse(core)
        outline = msgspec.convert(tree, _Outline)
        committed, same = dict(commitments(tree)), canonical(tree) == core
    except JsonError as error:
        return _Reading(record_hash, problem=f"the core is not readable: {error}")
    except msgspec.ValidationError as error:
        return _Reading(record_hash, problem=f"the core is not that of a record: {error}")
    problem = None
    if outline.spec != SPEC:
        problem = f"the core says it is {outline.spec!r}, not {SPEC!r}"
    elif not same:
        problem = "the core is not in canonical form"
    return _Reading(record_hash, outline, committed, problem)


def _check_hash(record: Record, reading: _Reading, expect: str | None) -> Check:
    broken = list(_hash_problems(record, reading))
    if _is_another(reading, expect):
        fault: Fault = "altered" if broken else "another"
        return _broken("hash", "; ".join([*broken, f"it is another record than {expect}"]), fault)
    if broken:
        return _broken("hash", "; ".join(broken))
    return _holds("hash", f"the core hashes to {reading.record_hash}")


def _is_another(reading: _Reading, expect: str | None) -> bool:
    if expect is None or reading.outline is None:
        return False
    return spelled(expect) not in (reading.record_hash, reading.outline.context_id)


def _hash_problems(record: Record, reading: _Reading) -> Iterator[str]:
    actual, outline = reading.record_hash, reading.outline
    if actual != record.record_hash:
        yield (
            f"the core hashes to {actual} and not to record_hash {record.record_hash}: "
            "one of them was altered"
        )
    if reading.problem is not None:
        yield reading.problem
    if outline is None:
        return
    if outline.context_id != record.context_id:
        yield f"context_id is {record.context_id}, but the core is of {outline.context_id}"
    if outline.output.content_hash != record.content_hash:
        yield (
            f"content_hash is {record.content_hash}, but the core says "
            f"{outline.output.content_hash}"
        )


def _check_signature(record: Record, reading: _Reading, keyring: Keyring, *, signed: bool) -> Check:
    signature = record.signature
    if signature is None:
        known = ", although there are keys to check one" if keyring.keys else ""
        return _unproved(f"the record is not signed{known}", "unsigned", signed=signed)
    try:
        statement = statement_of(signature)
    except SignatureError as error:
        return _broken("signature", str(error))
    problem = _statement_problem(statement, reading)
    if problem is not None:
        return _broken("signature", problem)
    key = keyring.find(statement.key_id)
    if key is None:
        return _unproved(_unknown(statement.key_id, keyring), "unchecked", signed=signed)
    return _check_key(statement, signature, key)


def _unknown(key_id: str, keyring: Keyring) -> str:
    if not keyring.keys:
        return f"no key was given; it names key {key_id!r}"
    known = ", ".join(repr(key.key_id) for key in keyring.keys)
    return f"key {key_id!r} is not in the keyring, which has {known}"


def _unproved(detail: str, fault: Fault, *, signed: bool) -> Check:
    """A signature that nobody has checked is none to those who ask for one."""
    return _broken("signature", detail, fault) if signed else _open("signature", detail)


def _statement_problem(statement: Statement, reading: _Reading) -> str | None:
    if statement.spec != STATEMENT_SPEC:
        return f"the signed statement is {statement.spec!r}, not {STATEMENT_SPEC!r}"
    if statement.record_hash != reading.record_hash:
        return f"it signs {statement.record_hash}, but this core hashes to {reading.record_hash}"
    if reading.outline is not None and statement.context_id != reading.outline.context_id:
        return f"it signs context {statement.context_id}, not {reading.outline.context_id}"
    return None


def _check_key(statement: Statement, signature: Signature, key: Key) -> Check:
    if key.algorithm != statement.algorithm:
        said = f"key {key.key_id!r} is for {key.algorithm}, not for {statement.algorithm!r}"
        return _broken("signature", said)
    try:
        holds = key.holds(signature.statement.encode(), from_base64(signature.signature))
    except ValueError:
        holds = False
    if holds:
        by = f"key {statement.key_id!r} ({statement.algorithm})"
        return _holds("signature", f"signed by {by} at {statement.signed_at}")
    return _broken(
        "signature",
        f"key {key.key_id!r} did not sign this statement: the signature, or the statement's key "
        "id, time or algorithm, was altered",
    )


def _check_disclosures(record: Record, reading: _Reading) -> tuple[dict[str, Any], Check]:
    """The values that open their commitments, and the verdict on all disclosures."""
    if reading.outline is None:
        return {}, _open("disclosures", "the core cannot be read")
    opened: dict[str, Any] = {}
    broken: list[str] = []
    for disclosure in record.disclosures:
        problem = _disclosure_problem(disclosure, reading.commitments, opened)
        if problem is None:
            opened[disclosure.pointer] = disclosure.value
        else:
            broken.append(f"{disclosure.pointer} {problem}")
    broken += _gaps(record, reading.commitments)
    broken += _false_notes(record.redactions, reading.outline.created_at)
    if broken:
        return opened, _broken("disclosures", "; ".join(broken))
    return opened, _disclosed(record, len(opened), len(reading.commitments))


def _disclosed(record: Record, opened: int, of: int) -> Check:
    if not record.disclosures:
        return _open("disclosures", f"a private copy: all {of} values are withheld")
    redacted = ", ".join(note.pointer for note in record.redactions)
    note = f"; redacted: {redacted}" if redacted else ""
    return _holds("disclosures", f"{opened} of {of} values open their commitments{note}")


def _disclosure_problem(
    disclosure: Disclosure, committed: dict[str, str], opened: dict[str, Any]
) -> str | None:
    pointer = disclosure.pointer
    if pointer in opened:
        return "is disclosed twice"
    if pointer not in committed:
        return "is disclosed, but the core commits to nothing there"
    return None if opens(disclosure, committed[pointer]) else ALTERED


def _gaps(record: Record, committed: Iterable[str]) -> Iterator[str]:
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    redacted = {note.pointer for note in record.redactions}
    known = set(committed)
    # A copy without any disclosure is a private one; with some, each gap needs its note.
    for pointer in sorted(known - disclosed - redacted) if disclosed else ():
        yield f"{pointer} is missing without a note of its redaction"
    for pointer in sorted(redacted - known):
        yield f"{pointer} is noted as redacted, but the core commits to nothing there"
    for pointer in sorted(redacted & disclosed):
        yield f"{pointer} is noted as redacted, but is still disclosed"


def _false_notes(notes: Iterable[Redaction], created_at: str) -> Iterator[str]:
    """What nobody who redacts would have noted."""
    earliest = _earliest(created_at)
    for note in notes:
        said = f"{note.pointer} is noted as redacted"
        if not is_moment(note.redacted_at):
            yield f"{said} at {note.redacted_at!r}, which is no moment"
        elif note.redacted_at < earliest:
            yield f"{said} at {note.redacted_at}, before the record was made at {created_at}"
        if not note.reason.strip(" \t\r\n"):
            yield f"{said} without a reason"


def _earliest(created_at: str) -> str:
    """The first moment at which a record can have been redacted; none if nobody knows when."""
    if not is_moment(created_at):
        return ""
    try:
        return moment_text(datetime.fromisoformat(created_at) - CLOCKS_DIFFER)
    except OverflowError:
        return ""


def _texts(
    record: Record, opened: dict[str, Any], pointers: Iterable[str]
) -> tuple[list[str], str]:
    """The texts that stand at these pointers, and what is wrong with those that do not."""
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    texts: list[str] = []
    faults: dict[str, list[str]] = {}
    for pointer in pointers:
        text = opened.get(pointer)
        if isinstance(text, str):
            texts.append(text)
        elif pointer in opened:
            faults.setdefault("no text", []).append(pointer)
        else:
            fault = _UNOPENED if pointer in disclosed else "not disclosed"
            faults.setdefault(fault, []).append(pointer)
    return texts, "; ".join(f"{fault}: {', '.join(those)}" for fault, those in faults.items())


def _check_content(record: Record, reading: _Reading, opened: dict[str, Any]) -> Check:
    if reading.outline is None:
        return _open("content", "the core cannot be read")
    texts, lack = _texts(record, opened, ["/output/content"])
    if lack:
        return _open("content", lack)
    expected = reading.outline.output.content_hash
    actual = content_hash(texts[0])
    if actual != expected:
        return _broken("content", f"/output/content hashes to {actual}, the core says {expected}")
    return _holds("content", f"the text hashes to {actual}")


def _check_reassembly(record: Record, reading: _Reading, opened: dict[str, Any]) -> Check:
    """Says whether the texts of the items that were kept make up the output."""
    outline = reading.outline
    if outline is None:
        return _open("reassembly", "the core cannot be read")
    if not outline.items:
        return _open("reassembly", "the record has no items")
    pointers = [
        f"/items/{at}/{'content' if item.emitted is None else 'emitted'}"
        for at, item in enumerate(outline.items)
        if item.decision != "dropped"
    ]
    texts, lack = _texts(record, opened, pointers)
    if lack:
        return _open("reassembly", lack)
    if content_hash(outline.policy.separator.join(texts)) != outline.output.content_hash:
        return _broken("reassembly", "the kept items do not make up the text of content_hash")
    return _holds("reassembly", f"{len(texts)} kept items make up the text")
