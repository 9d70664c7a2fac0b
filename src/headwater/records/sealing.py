"""Sealing: plain values become canonical bytes, commitments and disclosures, and come back."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from operator import attrgetter
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import msgspec

from headwater.core.canonical_json import canonical, child, from_tagged, to_base64, to_tagged
from headwater.errors import RecordValueError
from headwater.records.core import Commitment, Core, Exact
from headwater.records.record import Disclosure, Record, content_hash, hash_of, moment_text
from headwater.records.validation import explain_invalid, is_leaf

Salts = Callable[[int], bytes]
"""Gives so many bytes that nobody can guess."""

SALT_BYTES = 16
MARK = "$sd"
"""The key of a commitment in the core."""

ALTERED = "does not open its commitment: its value or salt was altered, or belongs elsewhere"
"""What is wrong with a disclosure whose value is not the one that was sealed."""

C = TypeVar("C", bound=Core)


def digest(salt: str, pointer: str, tagged: Any) -> str:
    """What the core says of a value instead of the value."""
    return sha256(canonical((salt, pointer, tagged))).hexdigest()


def seal(core: Core, salts: Salts = os.urandom) -> Record:
    """The record of what the core says; the same bytes again when the salts are the same."""
    text = core.output.content
    if not isinstance(text, str):
        raise RecordValueError("/output/content", "it is withheld; only plain values are sealed")
    to_tagged(text, "/output/content")
    output = msgspec.structs.replace(core.output, content_hash=content_hash(text))
    making = _Seal(salts)
    raw = _bytes(_sealed(msgspec.structs.replace(core, output=output), making))
    return Record(
        context_id=core.context_id,
        record_hash=hash_of(raw),
        content_hash=output.content_hash,
        core=raw,
        disclosures=tuple(sorted(making.disclosures, key=attrgetter("pointer"))),
    )


def _bytes(sealed: Core) -> bytes:
    """The text of a core, refused unless reading it gives the same core back."""
    try:
        raw = canonical(sealed)
        same = _decoder(type(sealed)).decode(raw) == sealed
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError):
        explain_invalid(type(sealed), sealed)
        raise
    if not same:
        # It may differ by right: a moment of a whole second is written as text.
        explain_invalid(type(sealed), sealed)
    return raw


@cache
def _decoder(kind: type[Core]) -> msgspec.json.Decoder[Core]:
    return msgspec.json.Decoder(kind)


class _Seal:
    """The commitments of one record as they are made."""

    __slots__ = ("_next_salt", "disclosures")

    def __init__(self, salts: Salts) -> None:
        self._next_salt = _drawn(salts).__next__
        self.disclosures: list[Disclosure] = []

    def commit(self, value: object, pointer: str) -> str:
        salt = self._next_salt()
        tagged = value if type(value) is str and value.isascii() else to_tagged(value, pointer)
        self.disclosures.append(Disclosure(pointer, salt, tagged))
        return digest(salt, pointer, tagged)


def _drawn(salts: Salts) -> Iterator[str]:
    """Salts one by one, asked for in blocks: a call of the system costs more than a block."""
    while True:
        block = salts(SALT_BYTES * 32)
        for start in range(0, len(block), SALT_BYTES):
            yield to_base64(block[start : start + SALT_BYTES])


def _sealed(core: Core, seal: _Seal) -> Core:
    """The core with commitments in place of values."""
    write = _writer(type(core))
    assert write is not None, "a core commits to its output"
    sealed: Core = write(core, "", seal)
    return sealed


_Writer = Callable[[Any, str, _Seal], Any]


@cache
def _writer(annotation: Any) -> _Writer | None:
    """How a field of this annotation is written, found once and not for each record.

    None if it is written as it stands, because nothing in it is committed to.
    """
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        return _optional(annotation)
    if origin in _CONTAINERS:
        return _CONTAINERS[origin](annotation)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _struct(annotation)
    if not is_leaf(annotation):
        raise TypeError(f"a field of {annotation} cannot stand in clear in a record; see Exact")
    return _write_moment if annotation is datetime else None


def _optional(annotation: Any) -> _Writer | None:
    """How a value is written that need not be there; for None it is not asked."""
    inner = [member for member in get_args(annotation) if member is not NoneType]
    if len(inner) > 1:
        raise TypeError(f"a field of {annotation} would be read back as any of them")
    return _writer(inner[0])


def _annotated(annotation: Any) -> _Writer | None:
    if annotation == Exact:
        return None
    if Any in get_args(annotation.__origin__):
        # As it is read back where anything may stand.
        return lambda value, pointer, seal: {MARK: seal.commit(value, pointer)}
    return lambda value, pointer, seal: Commitment(seal.commit(value, pointer))


def _each(annotation: Any) -> _Writer | None:
    write = _writer(get_args(annotation)[0])
    if write is None:
        return None
    return lambda value, pointer, seal: tuple(
        [write(item, f"{pointer}/{at}", seal) for at, item in enumerate(value)]
    )


def _named(annotation: Any) -> _Writer | None:
    write = _writer(get_args(annotation)[1])
    if write is None:
        return None
    return lambda value, pointer, seal: {
        key: write(item, child(pointer, key), seal) for key, item in _keys(value, pointer)
    }


_CONTAINERS: dict[Any, Callable[[Any], _Writer | None]] = {
    Annotated: _annotated,
    tuple: _each,
    dict: _named,
}


def _keys(value: Mapping[str, Any], pointer: str) -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if type(key) is not str or key.startswith("$"):
            raise RecordValueError(pointer, f"{key!r} must be a text that does not begin with '$'")
        to_tagged(key, pointer)
        yield key, item


def _struct(kind: type[msgspec.Struct]) -> _Writer | None:
    hints = get_type_hints(kind, include_extras=True)
    writers = [
        (name, f"/{name}", write, NoneType in get_args(hints[name]))
        for name in kind.__struct_fields__
        if (write := _writer(hints[name])) is not None
    ]
    if not writers:
        return None

    def write_all(value: Any, pointer: str, seal: _Seal) -> Any:
        if type(value) is not kind:
            raise RecordValueError(pointer, f"a {kind.__name__} belongs here, not {value!r}")
        written: dict[str, Any] = {}
        for name, ending, write, optional in writers:
            item = getattr(value, name)
            if item is not None or not optional:
                written[name] = write(item, pointer + ending, seal)
        return msgspec.structs.replace(value, **written) if written else value

    return write_all


def _write_moment(value: datetime, pointer: str, seal: _Seal) -> str | datetime:
    if value.tzinfo is not UTC:
        to_tagged(value, pointer)  # refuses one without a time zone
    # The encoder writes the same, and quicker; but of a whole second it leaves out the zeros.
    return value if value.tzinfo is UTC and value.microsecond else moment_text(value)


@overload
def open_core(record: Record) -> Core: ...


@overload
def open_core(record: Record, schema: type[C]) -> C: ...


def open_core(record: Record, schema: type[Core] = Core) -> Core:
    """What the record says, with every value that is disclosed and opens its commitment.

    What is withheld or redacted is a `Commitment`; what was altered is refused. Whether the core
    itself is the one that was sealed, `verify` says.
    """
    disclosed = {disclosure.pointer: disclosure for disclosure in record.disclosures}
    try:
        return msgspec.convert(_filled(msgspec.json.decode(record.core), "", disclosed), schema)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise RecordValueError("", f"it is not the core of a record: {error}") from error


def _filled(tree: Any, pointer: str, disclosed: Mapping[str, Disclosure]) -> Any:
    if isinstance(tree, list):
        return [_filled(item, f"{pointer}/{at}", disclosed) for at, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if is_commitment(tree):
        found = disclosed.get(pointer)
        return Commitment(tree[MARK]) if found is None else _opened(found, tree[MARK])
    return {key: _filled(item, child(pointer, key), disclosed) for key, item in tree.items()}


def _opened(disclosure: Disclosure, committed: str) -> Any:
    if not opens(disclosure, committed):
        raise RecordValueError(disclosure.pointer, f"it {ALTERED}")
    return from_tagged(disclosure.value, disclosure.pointer)


def opens(disclosure: Disclosure, committed: str) -> bool:
    """Says whether a disclosed value is the one that the core commits to."""
    try:
        return digest(disclosure.salt, disclosure.pointer, disclosure.value) == committed
    except (UnicodeEncodeError, RecursionError):
        return False  # no value of a record is written so, or lies so deep


def is_commitment(tree: Any) -> bool:
    """Says whether this part of a core stands for a value that lies beside it."""
    return isinstance(tree, dict) and tree.keys() == {MARK}


def commitments(tree: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Every commitment of a core that was read: its pointer and its digest."""
    if is_commitment(tree):
        yield pointer, tree[MARK]
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from commitments(item, child(pointer, key))
    elif isinstance(tree, list):
        for at, item in enumerate(tree):
            yield from commitments(item, f"{pointer}/{at}")
