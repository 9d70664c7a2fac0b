"""Verification of records and outcomes: each check holds, is broken or is not possible."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from headwater.core.canonical_json import JsonError, from_tagged, parse
from headwater.errors import DamagedRecordError, RecordValueError, SignatureError
from headwater.messages.parts import Role
from headwater.messages.texts import Place, layout, transcript
from headwater.model.contexts import Check, VerificationReport, broken, holds, unchecked
from headwater.records.checks import (
    Outline,
    Reading,
    check_disclosures,
    check_hash,
    check_signature,
    read,
)
from headwater.records.core import Commitment, Core
from headwater.records.document import load_all
from headwater.records.outcomes import OutcomeRecord
from headwater.records.record import Record, content_hash, hash_of
from headwater.records.sealing import open_core
from headwater.records.signing import parse_keyring, statement_of

_UNOPENED = "the disclosed value does not open its commitment"


class _Message(msgspec.Struct, frozen=True):
    role: str | None = None
    turn: int | None = None
    data: Commitment | None = None


class _Item(msgspec.Struct, frozen=True):
    content: Commitment
    decision: str
    emitted: Commitment | None = None
    message: _Message | None = None


class _Policy(msgspec.Struct, frozen=True):
    separator: str


class _Output(msgspec.Struct, frozen=True):
    content: Commitment
    content_hash: str


class _Outline(Outline, frozen=True, rename={"sealed_id": "context_id", "made_at": "created_at"}):
    """The fields of a record's core that verification reads."""

    sealed_id: str
    made_at: str
    policy: _Policy
    items: tuple[_Item, ...]
    output: _Output


class _OutcomeOutline(Outline, frozen=True, rename={"sealed_id": "outcome_id", "made_at": "at"}):
    """The fields of an outcome's core that verification reads."""

    sealed_id: str
    made_at: str
    context_id: str
    record_hash: str


def verify_record(
    record: Record,
    keys: str = "",
    *,
    expect: str | None = None,
    signed: bool | None = None,
    outcomes: Sequence[OutcomeRecord] = (),
) -> VerificationReport:
    """Check a record and name everything that is broken.

    Args:
        record: The record, with all, some or none of its values disclosed.
        keys: The keys that may have signed it, written as in ``HEADWATER_SIGNING_KEY``.
        expect: The record hash or context id that the record must have, in any spelling.
        signed: If true, fail unless one of the keys made the signature; if false, accept a record
            without a signature or with one by another key. By default true if there are keys.
        outcomes: Outcomes that must belong to the record; they are checked too.

    >>> verify_record(await store.get_record(ctx.context_id), expect=ctx.record_hash).ok
    True
    """
    reading, keyring = read(record, _Outline), parse_keyring(keys)
    outline, required = reading.outline, bool(keyring.keys) if signed is None else signed
    others = {}
    if outline is not None:
        others["content_hash"] = (record.content_hash, outline.output.content_hash)
    opened, disclosures = check_disclosures(record, reading)
    return VerificationReport(
        (
            check_hash(record, reading, expect, others),
            check_signature(record, reading, keyring, required=required),
            disclosures,
            _check_content(record, reading, opened),
            _check_reassembly(record, reading, opened),
        ),
        signed=record.signature is not None,
        outcomes=tuple(verify_outcome(each, keys, of=record, signed=signed) for each in outcomes),
    )


def verify_document(
    document: bytes | str,
    keys: str = "",
    *,
    expect: str | None = None,
    signed: bool | None = None,
) -> VerificationReport:
    """Check the document of a record with its outcomes, or of one outcome alone."""
    sealed, outcomes = load_all(document)
    if isinstance(sealed, OutcomeRecord):
        return verify_outcome(sealed, keys, expect=expect, signed=signed)
    return verify_record(sealed, keys, expect=expect, signed=signed, outcomes=outcomes)


def verify_outcome(
    outcome: OutcomeRecord,
    keys: str = "",
    *,
    of: Record | None = None,
    expect: str | None = None,
    signed: bool | None = None,
) -> VerificationReport:
    """Check an outcome and name everything that is broken.

    ``of`` is the record that it must belong to; the other arguments are those of `verify_record`.
    """
    reading, keyring = read(outcome, _OutcomeOutline), parse_keyring(keys)
    outline, required = reading.outline, bool(keyring.keys) if signed is None else signed
    others = {}
    if outline is not None:
        others["context_id"] = (outcome.context_id, outline.context_id)
        others["record_hash"] = (outcome.record_hash, outline.record_hash)
    _, disclosures = check_disclosures(outcome, reading)
    return VerificationReport(
        (
            check_hash(outcome, reading, expect, others),
            check_signature(outcome, reading, keyring, required=required),
            disclosures,
            _check_link(outline, of),
        ),
        signed=outcome.signature is not None,
        outcome_id=outcome.outcome_id,
    )


def _check_link(outline: _OutcomeOutline | None, of: Record | None) -> Check:
    """Check that an outcome names the id and the hash of its record."""
    if outline is None:
        return unchecked("link", "the core cannot be read")
    named = f"record {outline.record_hash} of context {outline.context_id}"
    if of is None:
        return unchecked("link", f"it belongs to {named}, which was not given")
    actual = hash_of(of.core)
    if (outline.record_hash, outline.context_id) != (actual, of.context_id):
        here = f"record {actual} of context {of.context_id}"
        return broken("link", f"it belongs to {named}, not to {here}")
    return holds("link", f"it belongs to {named}")


def _texts(
    record: Record, opened: dict[str, Any], pointers: Iterable[str]
) -> tuple[list[str], str]:
    """Return the texts at these pointers, and the reason why others are unavailable."""
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    texts: list[str] = []
    faults: dict[str, list[str]] = {}
    for pointer in pointers:
        text = opened.get(pointer)
        if isinstance(text, str):
            texts.append(text)
        elif pointer in opened:
            faults.setdefault("not a text", []).append(pointer)
        else:
            fault = _UNOPENED if pointer in disclosed else "not disclosed"
            faults.setdefault(fault, []).append(pointer)
    return texts, "; ".join(f"{fault}: {', '.join(at)}" for fault, at in faults.items())


def _check_content(record: Record, reading: Reading[_Outline], opened: dict[str, Any]) -> Check:
    if reading.outline is None:
        return unchecked("content", "the core cannot be read")
    texts, missing = _texts(record, opened, ["/output/content"])
    if missing:
        return unchecked("content", missing)
    expected = reading.outline.output.content_hash
    actual = content_hash(texts[0])
    if actual != expected:
        return broken("content", f"/output/content hashes to {actual}, the core says {expected}")
    return holds("content", f"the text hashes to {actual}")


def _check_reassembly(record: Record, reading: Reading[_Outline], opened: dict[str, Any]) -> Check:
    """Check that the texts of the kept items, joined, are the output; empty ones add nothing."""
    outline = reading.outline
    if outline is None:
        return unchecked("reassembly", "the core cannot be read")
    if not outline.items:
        return unchecked("reassembly", "the record has no items")
    pointers = [
        f"/items/{at}/{'content' if item.emitted is None else 'emitted'}"
        for at, item in enumerate(outline.items)
        if item.decision != "dropped"
    ]
    texts, missing = _texts(record, opened, pointers)
    if missing:
        return unchecked("reassembly", missing)
    if content_hash(_assembled(outline, texts)) != outline.output.content_hash:
        return broken("reassembly", "the kept items do not make up the text of content_hash")
    for at in range(len(outline.items)):
        data = opened.get(f"/items/{at}/message/data")
        if data is not None and not _is_image(data, opened.get(f"/items/{at}/content")):
            return broken("reassembly", f"the image of item {at} does not have its recorded hash")
    return holds("reassembly", f"{len(texts)} kept items make up the text")


def _assembled(outline: _Outline, texts: Sequence[str]) -> str:
    """Return the text that kept items make up: joined, or as the transcript of messages."""
    separator = outline.policy.separator
    messages = [item.message for item in outline.items]
    if all(message is None for message in messages):
        return separator.join(filter(None, texts))
    kept = iter(texts)
    shown = [None if item.decision == "dropped" else next(kept) for item in outline.items]
    places = [
        Place("user", None)
        if message is None
        else Place(cast(Role | None, message.role), message.turn)
        for message in messages
    ]
    return transcript(layout(places), shown, separator)


def _is_image(data: Any, descriptor: Any) -> bool:
    """Return True if an image has the hash that its item names."""
    try:
        image, fields = from_tagged(data), parse(descriptor)
    except (JsonError, RecordValueError, TypeError):
        return False
    is_complete = isinstance(image, bytes) and isinstance(fields, dict)
    return is_complete and fields.get("digest") == hash_of(image)


def checked_core(record: Record) -> Core:
    """Return the opened core of a record; raise `DamagedRecordError` if it was altered."""
    actual = hash_of(record.core)
    if actual != record.record_hash:
        problem = f"it hashes to {actual} and not to record_hash {record.record_hash}"
        raise DamagedRecordError(record.context_id, "core", problem)
    try:
        if record.signature is not None:
            statement_of(record.signature)
        core = open_core(record)
    except SignatureError as error:
        raise DamagedRecordError(record.context_id, "signature", str(error)) from error
    except RecordValueError as error:
        part, problem = ("disclosures", str(error)) if error.pointer else ("core", error.problem)
        raise DamagedRecordError(record.context_id, part, problem) from error
    if (core.context_id, core.output.content_hash) != (record.context_id, record.content_hash):
        problem = f"it is that of context {core.context_id} with {core.output.content_hash}"
        raise DamagedRecordError(record.context_id, "core", problem)
    return core
