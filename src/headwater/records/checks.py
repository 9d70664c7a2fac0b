"""The checks that everything sealed has in common: its hash, signature and disclosures.

The stored bytes of the core are hashed and never encoded again from a schema, so that records with
fields of later versions verify too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Generic, TypeVar

import msgspec

from headwater.core.canonical_json import JsonError, canonical, child, from_base64, parse
from headwater.errors import SignatureError
from headwater.model.contexts import Check, Fault, broken, holds, unchecked
from headwater.records.ids import spelled
from headwater.records.record import (
    Disclosure,
    Sealed,
    Signature,
    Statement,
    hash_of,
    is_moment,
    moment_text,
)
from headwater.records.sealing import ALTERED, MARK, is_commitment, opens
from headwater.records.signing import Key, Keyring, statement_of

CLOCKS_DIFFER = timedelta(minutes=10)
"""Tolerated difference between the clocks of the recording and the redacting host."""
MOST_NAMED = 20
"""Missing values that a report names; their pointers may be as long as the core."""
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


class Outline(msgspec.Struct, frozen=True):
    """The fields of a core that verification reads: its format, its id and when it was made."""

    spec: str
    sealed_id: str
    made_at: str


O = TypeVar("O", bound=Outline)  # noqa: E741


class Reading(msgspec.Struct, Generic[O], frozen=True):
    """A parsed core; an unreadable core has a problem and no outline."""

    sealed_hash: str
    outline: O | None = None
    commitments: CommitmentIndex = CommitmentIndex(None)
    problem: str | None = None


def read(sealed: Sealed, schema: type[O]) -> Reading[O]:
    """Hash and parse a core."""
    sealed_hash, form = hash_of(sealed.core), sealed.FORM
    try:
        tree = parse(sealed.core)
        outline = msgspec.convert(tree, schema)
        committed, same = CommitmentIndex(tree), canonical(tree) == sealed.core
    except JsonError as error:
        return Reading(sealed_hash, problem=f"the core is not readable: {error}")
    except msgspec.ValidationError as error:
        return Reading(sealed_hash, problem=f"the core is not that of {form.described}: {error}")
    problem = None
    if outline.spec != form.spec:
        problem = f"the core says it is {outline.spec!r}, not {form.spec!r}"
    elif not same:
        problem = "the core is not in canonical form"
    return Reading(sealed_hash, outline, committed, problem)


def check_hash(
    sealed: Sealed, reading: Reading[O], expect: str | None, others: Mapping[str, tuple[str, str]]
) -> Check:
    """Check the hash and the id of a core, and other facts: as given, and as the core says."""
    problems, outline = list(_hash_problems(sealed, reading, others)), reading.outline
    if (
        expect is not None
        and outline is not None
        and spelled(expect) not in (reading.sealed_hash, outline.sealed_id)
    ):
        fault: Fault = "altered" if problems else "another"
        another = f"it is another {sealed.FORM.noun} than {expect}"
        return broken("hash", "; ".join([*problems, another]), fault)
    if problems:
        return broken("hash", "; ".join(problems))
    return holds("hash", f"the core hashes to {reading.sealed_hash}")


def _hash_problems(
    sealed: Sealed, reading: Reading[O], others: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    actual, form = reading.sealed_hash, sealed.FORM
    if actual != sealed.sealed_hash:
        yield (
            f"the core hashes to {actual} and not to {form.hash_name} {sealed.sealed_hash}: "
            "one of them was altered"
        )
    if reading.problem is not None:
        yield reading.problem
    if reading.outline is None:
        return
    facts = {form.id_name: (sealed.sealed_id, reading.outline.sealed_id), **others}
    for name, (given, actual) in facts.items():
        if given != actual:
            yield f"{name} is {given}, but the core says {actual}"


def check_signature(
    sealed: Sealed, reading: Reading[O], keyring: Keyring, *, required: bool
) -> Check:
    """Check that a key of the keyring signed this hash and id."""
    signature, form = sealed.signature, sealed.FORM
    if signature is None:
        reason = ", although there are keys to check one" if keyring.keys else ""
        return _unverified(f"the {form.noun} is not signed{reason}", "unsigned", required=required)
    try:
        statement = statement_of(signature, form.statement)
    except SignatureError as error:
        return broken("signature", str(error))
    problem = _statement_problem(statement, sealed, reading)
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


def _statement_problem(statement: Statement, sealed: Sealed, reading: Reading[O]) -> str | None:
    form, outline = sealed.FORM, reading.outline
    if statement.spec != form.statement_spec:
        return f"the signed statement is {statement.spec!r}, not {form.statement_spec!r}"
    if statement.sealed_hash != reading.sealed_hash:
        return f"it signs {statement.sealed_hash}, but this core hashes to {reading.sealed_hash}"
    if outline is not None and statement.sealed_id != outline.sealed_id:
        return f"it signs {form.id_name} {statement.sealed_id}, not {outline.sealed_id}"
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


def check_disclosures(sealed: Sealed, reading: Reading[O]) -> tuple[dict[str, Any], Check]:
    """Return the values that open their commitments, and the check of all disclosures."""
    if reading.outline is None:
        return {}, unchecked("disclosures", "the core cannot be read")
    opened: dict[str, Any] = {}
    problems: list[str] = []
    for disclosure in sealed.disclosures:
        problem = _disclosure_problem(disclosure, reading.commitments, opened)
        if problem is None:
            opened[disclosure.pointer] = disclosure.value
        else:
            problems.append(f"{disclosure.pointer} {problem}")
    problems += _gaps(sealed, reading.commitments)
    problems += _invalid_notes(sealed, reading.outline.made_at)
    if problems:
        return opened, broken("disclosures", "; ".join(problems))
    total = len(reading.commitments)
    if total and not sealed.disclosures:
        detail = f"a private copy: all {total} values are withheld"
        return opened, unchecked("disclosures", detail)
    redacted = ", ".join(note.pointer for note in sealed.redactions)
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


def _gaps(sealed: Sealed, committed: CommitmentIndex) -> Iterator[str]:
    disclosed = {disclosure.pointer for disclosure in sealed.disclosures}
    redacted = {note.pointer for note in sealed.redactions}
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


def _invalid_notes(sealed: Sealed, made_at: str) -> Iterator[str]:
    """Yield the problems of redaction notes that `redact` cannot have written."""
    earliest = _earliest(made_at)
    for note in sealed.redactions:
        noted = f"{note.pointer} is noted as redacted"
        if not is_moment(note.redacted_at):
            yield f"{noted} at {note.redacted_at!r}, which is not a valid time"
        elif note.redacted_at < earliest:
            when = f"before the {sealed.FORM.noun} was made at {made_at}"
            yield f"{noted} at {note.redacted_at}, {when}"
        if not note.reason.strip(" \t\r\n"):
            yield f"{noted} without a reason"


def _earliest(made_at: str) -> str:
    """Return the earliest valid time of a redaction, or "" if `made_at` is not a valid time."""
    if not is_moment(made_at):
        return ""
    try:
        return moment_text(datetime.fromisoformat(made_at) - CLOCKS_DIFFER)
    except OverflowError:
        return ""
