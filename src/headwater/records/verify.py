"""Verification of a record: five checks, each of which holds, is broken or is not possible.

The stored bytes of the core are hashed and never encoded again from a schema, so that records with
fields of later versions verify too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, cast

import msgspec

from headwater.core.canonical_json import (
    JsonError,
    canonical,
    child,
    from_base64,
    from_tagged,
    parse,
)
from headwater.errors import DamagedRecordError, RecordValueError, SignatureError
from headwater.messages.parts import Role
from headwater.messages.texts import Place, transcript
from headwater.model.contexts import Check, Fault, VerificationReport, broken, holds, unchecked
from headwater.records.core import Commitment, Core
from headwater.records.ids import spelled
from headwater.records.record import (
    SPEC,
    Disclosure,
    Record,
    Redaction,
    Signature,
    Statement,
    content_hash,
    hash_of,
    is_moment,
    moment_text,
)
from headwater.records.sealing import ALTERED, MARK, is_commitment, open_core, opens
from headwater.records.signing import Key, Keyring, parse_keyring, statement_of

CLOCKS_DIFFER = timedelta(minutes=10)
"""Tolerated difference between the clocks of the recording and the redacting host."""
MOST_NAMED = 20
"""Missing values that a report names; their pointers may be as long as the core."""
_UNOPENED = "the disclosed value does not open its commitment"
_INDEX = re.compile(r"0|[1-9][0-9]{0,15}")
_Path = tuple[str | int, "_Path"] | None
"""The last step to a node, and the path of the node above it."""


class CommitmentIndex:
    """Finds commitments by their pointers, and names the ones at which nothing points."""

    def __init__(self, tree: Any) -> None:
        self._tree = tree
        self._size = sum(1 for _ in _walk(tree))

    def __len__(self) -> int:
        return self._size

    def find(self, pointer: str) -> dict[str, Any] | None:
        """Return the commitment at a pointer in the one spelling that records use."""
        first, *steps = pointer.split("/")
        node = None if first else self._tree
        for step in steps:
            if is_commitment(node):
                return None
            node = _member(node, step)
        return node if is_commitment(node) else None

    def __contains__(self, pointer: str) -> bool:
        return self.find(pointer) is not None

    def without(self, pointers: Iterable[str]) -> _Unnamed:
        """Return the commitments at which none of these pointers points."""
        named = {id(node) for pointer in pointers if (node := self.find(pointer)) is not None}
        return _Unnamed(self._tree, named, self._size - len(named))


class _Unnamed:
    """Some commitments of a core: their number, and the pointers of the first ones."""

    def __init__(self, tree: Any, named: Collection[int], size: int) -> None:
        self._tree = tree
        self._named = named
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[str]:
        if self._size:
            yield from (
                _pointer(path) for node, path in _walk(self._tree) if id(node) not in self._named
            )


def _member(node: Any, step: str) -> Any:
    if isinstance(node, dict):
        key = step.replace("~1", "/").replace("~0", "~")
        return node.get(key) if child("", key) == f"/{step}" else None
    if isinstance(node, list) and _INDEX.fullmatch(step) and int(step) < len(node):
        return node[int(step)]
    return None


def _walk(tree: Any) -> Iterator[tuple[dict[str, Any], _Path]]:
    """Yield every commitment with its path, in the order of the core."""
    waiting: list[tuple[Any, _Path]] = [(tree, None)]
    while waiting:
        node, path = waiting.pop()
        if is_commitment(node):
            yield node, path
        elif isinstance(node, dict):
            waiting.extend((item, (key, path)) for key, item in reversed(node.items()))
        elif isinstance(node, list):
            places = range(len(node) - 1, -1, -1)
            waiting.extend((node[place], (place, path)) for place in places)


def _pointer(path: _Path) -> str:
    steps: list[str] = []
    while path is not None:
        step, path = path
        steps.append(child("", step))
    return "".join(reversed(steps))


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


class _Outline(msgspec.Struct, frozen=True):
    """The fields of a core that verification reads."""

    spec: str
    context_id: str
    created_at: str
    policy: _Policy
    items: tuple[_Item, ...]
    output: _Output


class _Reading(msgspec.Struct, frozen=True):
    """A parsed core; an unreadable core has a problem and no outline."""

    record_hash: str
    outline: _Outline | None = None
    commitments: CommitmentIndex = CommitmentIndex(None)
    problem: str | None = None


def verify_record(
    record: Record,
    keys: str = "",
    *,
    expect: str | None = None,
    signed: bool | None = None,
) -> VerificationReport:
    """Check a record and name everything that is broken.

    Args:
        record: The record, with all, some or none of its values disclosed.
        keys: The keys that may have signed it, written as in ``HEADWATER_SIGNING_KEY``.
        expect: The record hash or context id that the record must have, in any spelling.
        signed: If true, fail unless one of the keys made the signature; if false, accept a record
            without a signature or with one by another key. By default true if there are keys.

    >>> verify_record(await store.get_record(ctx.context_id), expect=ctx.record_hash).ok
    True
    """
    reading, keyring = _read(record.core), parse_keyring(keys)
    required = bool(keyring.keys) if signed is None else signed
    opened, disclosures = _check_disclosures(record, reading)
    return VerificationReport(
        (
            _check_hash(record, reading, expect),
            _check_signature(record, reading, keyring, required=required),
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
        committed, same = CommitmentIndex(tree), canonical(tree) == core
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
    problems, outline = list(_hash_problems(record, reading)), reading.outline
    if (
        expect is not None
        and outline is not None
        and spelled(expect) not in (reading.record_hash, outline.context_id)
    ):
        fault: Fault = "altered" if problems else "another"
        return broken("hash", "; ".join([*problems, f"it is another record than {expect}"]), fault)
    if problems:
        return broken("hash", "; ".join(problems))
    return holds("hash", f"the core hashes to {reading.record_hash}")


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


def _check_signature(
    record: Record, reading: _Reading, keyring: Keyring, *, required: bool
) -> Check:
    signature = record.signature
    if signature is None:
        reason = ", although there are keys to check one" if keyring.keys else ""
        return _unverified(f"the record is not signed{reason}", "unsigned", required=required)
    try:
        statement = statement_of(signature)
    except SignatureError as error:
        return broken("signature", str(error))
    problem = _statement_problem(statement, reading)
    if problem is not None:
        return broken("signature", problem)
    key = keyring.find(statement.key_id)
    if key is not None:
        return _check_key(statement, signature, key)
    key_ids = ", ".join(repr(key.key_id) for key in keyring.keys)
    detail = f"key {statement.key_id!r} is not in the keyring, which has {key_ids}"
    if not keyring.keys:
        detail = f"no key was given; it names key {statement.key_id!r}"
    return _unverified(detail, "unchecked", required=required)


def _unverified(detail: str, fault: Fault, *, required: bool) -> Check:
    """Return a failed check if a signature is required, otherwise an unchecked one."""
    return broken("signature", detail, fault) if required else unchecked("signature", detail)


def _statement_problem(statement: Statement, reading: _Reading) -> str | None:
    if statement.spec != Record.FORM.statement_spec:
        return f"the signed statement is {statement.spec!r}, not {Record.FORM.statement_spec!r}"
    if statement.sealed_hash != reading.record_hash:
        return f"it signs {statement.sealed_hash}, but this core hashes to {reading.record_hash}"
    if reading.outline is not None and statement.sealed_id != reading.outline.context_id:
        return f"it signs context {statement.sealed_id}, not {reading.outline.context_id}"
    return None


def _check_key(statement: Statement, signature: Signature, key: Key) -> Check:
    if key.algorithm != statement.algorithm:
        problem = f"key {key.key_id!r} is for {key.algorithm}, not for {statement.algorithm!r}"
        return broken("signature", problem)
    try:
        is_valid = key.verifies(signature.statement.encode(), from_base64(signature.signature))
    except ValueError:
        is_valid = False
    if is_valid:
        by = f"key {statement.key_id!r} ({statement.algorithm})"
        return holds("signature", f"signed by {by} at {statement.signed_at}")
    return broken(
        "signature",
        f"key {key.key_id!r} did not sign this statement: the signature, or the statement's key "
        "id, time or algorithm, was altered",
    )


def _check_disclosures(record: Record, reading: _Reading) -> tuple[dict[str, Any], Check]:
    """Return the values that open their commitments, and the check of all disclosures."""
    if reading.outline is None:
        return {}, unchecked("disclosures", "the core cannot be read")
    opened: dict[str, Any] = {}
    problems: list[str] = []
    for disclosure in record.disclosures:
        problem = _disclosure_problem(disclosure, reading.commitments, opened)
        if problem is None:
            opened[disclosure.pointer] = disclosure.value
        else:
            problems.append(f"{disclosure.pointer} {problem}")
    problems += _gaps(record, reading.commitments)
    problems += _invalid_notes(record.redactions, reading.outline.created_at)
    if problems:
        return opened, broken("disclosures", "; ".join(problems))
    total = len(reading.commitments)
    if not record.disclosures:
        detail = f"a private copy: all {total} values are withheld"
        return opened, unchecked("disclosures", detail)
    redacted = ", ".join(note.pointer for note in record.redactions)
    note = f"; redacted: {redacted}" if redacted else ""
    detail = f"{len(opened)} of {total} values open their commitments{note}"
    return opened, holds("disclosures", detail)


def _disclosure_problem(
    disclosure: Disclosure, committed: CommitmentIndex, opened: dict[str, Any]
) -> str | None:
    pointer = disclosure.pointer
    if pointer in opened:
        return "is disclosed twice"
    commitment = committed.find(pointer)
    if commitment is None:
        return "is disclosed, but the core commits to nothing there"
    return None if opens(disclosure, commitment[MARK]) else ALTERED


def _gaps(record: Record, committed: CommitmentIndex) -> Iterator[str]:
    disclosed = {disclosure.pointer for disclosure in record.disclosures}
    redacted = {note.pointer for note in record.redactions}
    # A copy without any disclosure is a private one; with some, each gap needs its note.
    if disclosed:
        missing = committed.without(disclosed | redacted)
        for pointer in islice(missing, MOST_NAMED):
            yield f"{pointer} is missing without a note of its redaction"
        if len(missing) > MOST_NAMED:
            yield f"{len(missing) - MOST_NAMED} more are missing without a note of their redaction"
    for pointer in sorted(redacted):
        if pointer not in committed:
            yield f"{pointer} is noted as redacted, but the core commits to nothing there"
        if pointer in disclosed:
            yield f"{pointer} is noted as redacted, but is still disclosed"


def _invalid_notes(notes: Iterable[Redaction], created_at: str) -> Iterator[str]:
    """Yield the problems of redaction notes that `redact` cannot have written."""
    earliest = _earliest(created_at)
    for note in notes:
        noted = f"{note.pointer} is noted as redacted"
        if not is_moment(note.redacted_at):
            yield f"{noted} at {note.redacted_at!r}, which is not a valid time"
        elif note.redacted_at < earliest:
            yield f"{noted} at {note.redacted_at}, before the record was made at {created_at}"
        if not note.reason.strip(" \t\r\n"):
            yield f"{noted} without a reason"


def _earliest(created_at: str) -> str:
    """Return the earliest valid time of a redaction, or "" if `created_at` is not a valid time."""
    if not is_moment(created_at):
        return ""
    try:
        return moment_text(datetime.fromisoformat(created_at) - CLOCKS_DIFFER)
    except OverflowError:
        return ""


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


def _check_content(record: Record, reading: _Reading, opened: dict[str, Any]) -> Check:
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


def _check_reassembly(record: Record, reading: _Reading, opened: dict[str, Any]) -> Check:
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
    return transcript(places, shown, separator)


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
