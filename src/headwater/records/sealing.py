"""Sealing a core into canonical bytes, commitments and disclosures, and opening it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import sha256
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import msgspec
from msgspec.structs import force_setattr

from headwater.core.canonical_json import (
    LARGEST,
    canonical,
    child,
    from_tagged,
    to_base64,
    to_tagged,
)
from headwater.errors import RecordValueError
from headwater.model.values import Exact
from headwater.records.core import Commitment, Core
from headwater.records.record import Disclosure, Record, Sealed, content_hash, hash_of, moment_text

Salts = Callable[[int], bytes]
"""Returns this number of random bytes."""
SALT_BYTES = 16
MARK = "$sd"
"""The key of a commitment in the core."""
_MARK_TEXT = b'"$sd"'
ALTERED = "does not open its commitment: its value or salt was altered, or belongs elsewhere"
"""The problem of a disclosure whose value is not the sealed one."""
C = TypeVar("C", bound=msgspec.Struct)
_ABSENT = {NoneType, msgspec.UnsetType}
# A time of a whole second is written as text: the encoder would omit its zeros.
_LEAVES: dict[Any, tuple[type, ...]] = {str: (str,), bool: (bool,), datetime: (datetime, str)}


def digest(salt: str, pointer: str, tagged: Any) -> str:
    """Return the commitment that the core holds in place of a value."""
    return sha256(canonical((salt, pointer, tagged))).hexdigest()


def seal(core: Core, salts: Salts = os.urandom) -> Record:
    """Return the record of a core; equal cores and salts give equal bytes."""
    text = core.output.content
    if not isinstance(text, str):
        raise RecordValueError("/output/content", "it is withheld; only plain values can be sealed")
    to_tagged(text, "/output/content")
    output = msgspec.structs.replace(core.output, content_hash=content_hash(text))
    raw, disclosures = seal_core(msgspec.structs.replace(core, output=output), salts)
    return Record(
        context_id=core.context_id,
        record_hash=hash_of(raw),
        content_hash=output.content_hash,
        core=raw,
        disclosures=disclosures,
    )


def seal_core(core: msgspec.Struct, salts: Salts) -> tuple[bytes, tuple[Disclosure, ...]]:
    """Return the canonical bytes of a core, and what opens its commitments."""
    found: list[_Found] = []
    write = _writer(type(core))
    assert write is not None, "a core commits to some value"
    sealed = write(core, "", found)
    disclosures = _commit(found, salts)
    return _bytes(sealed), disclosures


def _commit(found: Sequence[_Found], salts: Salts) -> tuple[Disclosure, ...]:
    """Fill in the digests of all commitments, and return what opens them."""
    drawn = salts(SALT_BYTES * len(found))  # at once: a system call costs more than a hash
    start, disclosures = 0, []
    for pointer, value, commitment in found:
        salt = to_base64(drawn[start : start + SALT_BYTES])
        start += SALT_BYTES
        tagged = value if type(value) is str and value.isascii() else to_tagged(value, pointer)
        hashed = digest(salt, pointer, tagged)
        if isinstance(commitment, dict):
            commitment[MARK] = hashed
        else:
            force_setattr(commitment, "digest", hashed)
        disclosures.append(Disclosure(pointer, salt, tagged))
    disclosures.sort(key=attrgetter("pointer"))
    return tuple(disclosures)


def _bytes(sealed: msgspec.Struct) -> bytes:
    """Return the bytes of a core; raise unless decoding them gives the same core."""
    try:
        raw = canonical(sealed)
        same = _decoder(type(sealed)).decode(raw) == sealed
    except (UnicodeEncodeError, TypeError, msgspec.MsgspecError):
        explain_invalid(type(sealed), sealed)
        raise
    if not same:
        # A difference may be legitimate: a time of a whole second is written as text.
        explain_invalid(type(sealed), sealed)
    return raw


def prepare(kind: type[msgspec.Struct]) -> None:
    """Make what seals cores of a type, which otherwise the first one would wait for."""
    _writer(kind)
    _decoder(kind)


@cache
def _decoder(kind: type[msgspec.Struct]) -> msgspec.json.Decoder[msgspec.Struct]:
    return msgspec.json.Decoder(kind)


_Found = tuple[str, Any, Commitment | dict[str, str]]
"""A value to commit to: its pointer in the core, and the commitment that gets its digest.

The commitment is a dict where the field is of type Any: that is how such a one is decoded.
"""

_Writer = Callable[[Any, str, list[_Found]], Any]
"""Returns a value as the core has it, and lists the values that it commits to."""


@cache
def _writer(annotation: Any) -> _Writer | None:
    """Return the function that seals fields of this annotation, or None if nothing is sealed."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):  # an optional field; the writer is not called for None
        inner = [member for member in get_args(annotation) if member not in _ABSENT]
        if len(inner) > 1:
            raise TypeError(f"a field of {annotation} would be ambiguous when it is decoded")
        return _writer(inner[0])
    if origin is Annotated:
        if annotation == Exact:
            return None
        return _write_any if Any in get_args(annotation.__origin__) else _write_committed
    if origin in (tuple, dict):
        write = _writer(get_args(annotation)[0 if origin is tuple else 1])
        return write and partial(_write_each if origin is tuple else _write_named, write)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return _struct_writer(annotation)
    if not is_leaf(annotation):
        raise TypeError(f"a field of {annotation} cannot be uncommitted in a record; see Exact")
    return _write_moment if annotation is datetime else None


def _struct_writer(kind: type[msgspec.Struct]) -> _Writer | None:
    hints = get_type_hints(kind, include_extras=True)
    fields = [
        (name, f"/{name}", write, not _ABSENT.isdisjoint(get_args(hints[name])))
        for name in kind.__struct_fields__
        if (write := _writer(hints[name])) is not None
    ]
    if not fields:
        return None

    def write_struct(value: Any, pointer: str, found: list[_Found]) -> Any:
        if type(value) is not kind:
            raise RecordValueError(pointer, f"a {kind.__name__} belongs here, not {value!r}")
        written: dict[str, Any] = {}
        for name, ending, write, optional in fields:
            item = getattr(value, name)
            if optional and (item is None or item is msgspec.UNSET):
                continue
            if (sealed := write(item, pointer + ending, found)) is not item:
                written[name] = sealed
        return msgspec.structs.replace(value, **written) if written else value

    return write_struct


def _write_committed(value: object, pointer: str, found: list[_Found]) -> Commitment:
    commitment = Commitment("")
    found.append((pointer, value, commitment))
    return commitment


def _write_any(value: object, pointer: str, found: list[_Found]) -> dict[str, str]:
    commitment = {MARK: ""}
    found.append((pointer, value, commitment))
    return commitment


def _write_each(
    write: _Writer, values: tuple[Any, ...], pointer: str, found: list[_Found]
) -> tuple[Any, ...]:
    return tuple([write(item, f"{pointer}/{at}", found) for at, item in enumerate(values)])


def _write_named(
    write: _Writer, values: Mapping[str, Any], pointer: str, found: list[_Found]
) -> dict[str, Any]:
    written = {}
    for key, item in values.items():
        if type(key) is not str or key.startswith("$"):
            raise RecordValueError(pointer, f"{key!r} must be a text that does not begin with '$'")
        to_tagged(key, pointer)
        written[key] = write(item, child(pointer, key), found)
    return written


def _write_moment(value: datetime, pointer: str, found: list[_Found]) -> str | datetime:
    if value.tzinfo is not UTC:
        to_tagged(value, pointer)  # raises without a time zone
    # The encoder is faster and writes the same, except for whole seconds: it omits their zeros.
    return value if value.tzinfo is UTC and value.microsecond else moment_text(value)


@overload
def open_core(sealed: Record) -> Core: ...


@overload
def open_core(sealed: Sealed, schema: type[C]) -> C: ...


def open_core(sealed: Sealed, schema: type[msgspec.Struct] = Core) -> msgspec.Struct:
    """Return the core with the disclosed values; others are a `Commitment`.

    It does not check the hash of the core; `verify` does.

    Raises:
        RecordValueError: A disclosed value does not open its commitment, or the core is invalid.
    """
    try:
        tree = msgspec.json.decode(sealed.core)
        if sealed.core.count(_MARK_TEXT) != len(sealed.disclosures) or not _fill(tree, sealed):
            disclosed = {disclosure.pointer: disclosure for disclosure in sealed.disclosures}
            tree = _filled(msgspec.json.decode(sealed.core), "", disclosed)
        return msgspec.convert(tree, schema)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        problem = f"it is not the core of {sealed.FORM.described}: {error}"
        raise RecordValueError("", problem) from error


def _fill(tree: Any, sealed: Sealed) -> bool:
    """Put the disclosed values into a core that withholds none; False if one has no place there.

    Most of a core is no commitment, so to go to each is faster than to go through everything.
    """
    for disclosure in sealed.disclosures:
        *path, last = map(_unescaped, disclosure.pointer.split("/")[1:])
        place = tree
        try:
            for key in path:
                place = place[int(key) if isinstance(place, list) else key]
            at: Any = int(last) if isinstance(place, list) else last
            committed = place[at]
        except (LookupError, TypeError, ValueError):
            return False
        if not is_commitment(committed):
            return False
        place[at] = _opened(disclosure, committed[MARK])
    return True


def _unescaped(key: str) -> str:
    return key.replace("~1", "/").replace("~0", "~") if "~" in key else key


def _filled(tree: Any, pointer: str, disclosed: Mapping[str, Disclosure]) -> Any:
    if isinstance(tree, list):
        return [_filled(item, f"{pointer}/{at}", disclosed) for at, item in enumerate(tree)]
    if not isinstance(tree, dict):
        return tree
    if is_commitment(tree):
        disclosure = disclosed.get(pointer)
        return Commitment(tree[MARK]) if disclosure is None else _opened(disclosure, tree[MARK])
    return {key: _filled(item, child(pointer, key), disclosed) for key, item in tree.items()}


def _opened(disclosure: Disclosure, committed: str) -> Any:
    if not opens(disclosure, committed):
        raise RecordValueError(disclosure.pointer, f"it {ALTERED}")
    return from_tagged(disclosure.value, disclosure.pointer)


def opens(disclosure: Disclosure, committed: str) -> bool:
    """Return True if a disclosed value is the one that the core commits to."""
    try:
        return digest(disclosure.salt, disclosure.pointer, disclosure.value) == committed
    except (UnicodeEncodeError, RecursionError):
        return False  # a sealed value has neither lone surrogates nor such depth


def is_commitment(tree: Any) -> bool:
    """Return True if this part of a core is a commitment."""
    return isinstance(tree, dict) and tree.keys() == {MARK}


def commitments(tree: Any, pointer: str = "") -> Iterator[tuple[str, str]]:
    """Yield the pointer and the digest of every commitment in a decoded core."""
    if is_commitment(tree):
        yield pointer, tree[MARK]
    elif isinstance(tree, dict):
        for key, item in tree.items():
            yield from commitments(item, child(pointer, key))
    elif isinstance(tree, list):
        for at, item in enumerate(tree):
            yield from commitments(item, f"{pointer}/{at}")


def is_leaf(annotation: Any) -> bool:
    """Return True if fields of this annotation need no commitment; float and int are excluded."""
    return annotation in _LEAVES or get_origin(annotation) is Literal


def explain_invalid(annotation: Any, value: Any, pointer: str = "") -> None:
    """Raise `RecordValueError` for the first value that does not match its annotation exactly."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        if value is not None and value is not msgspec.UNSET:
            kind = next(kind for kind in arguments if kind not in _ABSENT)
            explain_invalid(kind, value, pointer)
    elif origin in _MEMBERS:
        for key, item in _MEMBERS[origin](value):
            explain_invalid(arguments[-1 if origin is dict else 0], item, child(pointer, key))
    elif isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        _check_type(annotation, value, pointer)
        for name, hint in get_type_hints(annotation, include_extras=True).items():
            explain_invalid(hint, getattr(value, name), child(pointer, name))
    else:
        _check_leaf(annotation, value, pointer)


_MEMBERS: dict[Any, Callable[[Any], Iterable[tuple[Any, Any]]]] = {
    tuple: enumerate,
    dict: dict.items,
}


def _check_type(kind: type, value: Any, pointer: str) -> None:
    if type(value) is not kind:
        raise RecordValueError(pointer, f"a {kind.__name__} belongs here, not {value!r}")


def _check_leaf(annotation: Any, value: Any, pointer: str) -> None:
    if not _is_valid(annotation, value):
        raise RecordValueError(
            pointer,
            f"{value!r} is not valid in this field of a record; use text, booleans and integers "
            "within ±(2^53-1), as the field declares",
        )
    if type(value) is str:
        to_tagged(value, pointer)  # raises for lone surrogates


def _is_valid(annotation: Any, value: Any) -> bool:
    origin = get_origin(annotation)
    if origin is Literal:
        return value in get_args(annotation)
    if origin is not Annotated:
        return type(value) in _LEAVES[annotation]
    if annotation == Exact:
        return type(value) is int and abs(value) <= LARGEST
    return type(value) in (Commitment, dict)
