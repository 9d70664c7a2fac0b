"""Redaction: erase values of a record for good, note each one, and find their copies. Pure.

The hash of a redacted record stays valid. A copy is an equal value, a text that contains the value
as a template writes it, or the id or content hash of a chunk with this text. Of a list or a dict
each leaf is searched for, too. Values are compared leaf by leaf, without decoding: a text with JSON
escapes, another spelling of a number or a date, or a part of a text is not found, except for the
formats of the record's own templates. People choose among the pointers that are found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from hashlib import sha256
from types import NoneType
from typing import Any, TypeVar

import msgspec

from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.core.formats import as_text
from headwater.core.templates import parse_template
from headwater.errors import InvalidInputError, RecordValueError, RedactionError, TemplateError
from headwater.records.record import Redaction, Sealed, core_fields, moment_text

S = TypeVar("S", bound=Sealed)
_OUTPUT = "/output/content"
_ITEM_TEXT = re.compile(r"/items/(\d+)/(?:content|emitted)")
_TEMPLATE = re.compile(r"/items/\d+/source/ref")
_READ = re.compile(r"/features/(\d+)/value")
# These say nothing about a person, and would be found in almost every record.
_TRIVIAL: tuple[Any, ...] = (None, True, False, "", [], {}, {"$float": "0.0"}, {"$float": "1.0"})


# The values of these tags are leaves of the value; other tags are leaves themselves.
_CONTAINER_TAGS = ("$tuple", "$set", "$frozenset")
_HASH_DIGITS = 16
_SHORTEST_LEAF = 3
"""Characters of a leaf that is searched for; shorter ones occur almost everywhere."""


def redact(sealed: S, *pointers: str, at: datetime, reason: str, by: str | None = None) -> S:
    """Return a record or an outcome without the disclosures at these pointers.

    Raises:
        RedactionError: One of the pointers is not disclosed; nothing is redacted then.
        InvalidInputError: `reason` or `by` is not usable text.
    """
    if type(reason) is not str or type(by) not in (str, NoneType):
        raise InvalidInputError("give reason and by as text: they stay in the record")
    if not reason.strip():
        raise InvalidInputError("say for what reason the value is redacted")
    to_tagged((reason, by), "reason or by")  # raises for lone surrogates
    erased = dict.fromkeys(pointers)  # each once
    _check_disclosed(sealed, erased)
    # Clocks differ from host to host, and a note must not be older than its record.
    made_at = sealed.made_at()  # values of an unreadable one can be erased as well
    moment = moment_text(at if made_at is None else max(at, made_at))
    notes = (
        Redaction(pointer=pointer, redacted_at=moment, reason=reason, by=by) for pointer in erased
    )
    return msgspec.structs.replace(
        sealed,
        disclosures=tuple(item for item in sealed.disclosures if item.pointer not in erased),
        redactions=(*sealed.redactions, *notes),
    )


def _check_disclosed(sealed: Sealed, pointers: Iterable[str]) -> None:
    disclosed = [item.pointer for item in sealed.disclosures]
    notes = {note.pointer: note for note in sealed.redactions}
    for pointer in pointers:
        if pointer in disclosed:
            continue
        note, earlier = notes.get(pointer), None
        if note is not None:
            by = "" if note.by is None else f" by {note.by}"
            earlier = f"at {note.redacted_at}{by}, because: {note.reason}"
        raise RedactionError(pointer, disclosed, earlier)


class _Decision(msgspec.Struct, frozen=True):
    decision: str


class _Decisions(msgspec.Struct, frozen=True):
    items: tuple[_Decision, ...]


class _Read(msgspec.Struct, frozen=True):
    feature: str


class _FeatureReads(msgspec.Struct, frozen=True):
    features: tuple[_Read, ...]


class _Needle(msgspec.Struct, frozen=True):
    """A value to search for: as a part of another value, or as text."""

    tagged: Any
    text: str | None = None
    is_number: bool = False

    def is_in(self, value: Any) -> bool:
        """Return True if a value equals this one, contains it, or contains its text."""
        return any(node == self.tagged or self._is_in_text(node) for node in _nodes(value))

    def _is_in_text(self, node: Any) -> bool:
        if self.text is None or not isinstance(node, str):
            return False
        at = node.find(self.text)
        while at >= 0 and self.is_number:
            end = at + len(self.text)
            if not (node[max(0, at - 1) : at].isdigit() or node[end : end + 1].isdigit()):
                break  # it is not a part of a longer number
            at = node.find(self.text, at + 1)
        return at >= 0


def also_disclosed(record: Sealed, *pointers: str) -> list[str]:
    """Return the other pointers that disclose one of these values, or a text that contains it.

    The final text stands for all items that it was joined from, and a shortened text for the
    item's content.
    """
    values = {item.pointer: item.value for item in record.disclosures}
    chosen = [*pointers, *_parts(record, pointers)]
    places = {*chosen, *copies_in(record, record, pointers)}
    places.update(_shortened(tuple(places), values))
    return [pointer for pointer in values if pointer in places and pointer not in pointers]


def copies_in(other: Sealed, record: Sealed, pointers: Sequence[str]) -> list[str]:
    """Return the pointers of one that disclose values at these pointers of another one."""
    values = {item.pointer: item.value for item in record.disclosures}
    chosen = [*pointers, *_parts(record, pointers)]
    needles = [
        needle
        for pointer in chosen
        if values.get(pointer) not in _TRIVIAL
        for needle in (*_needles(values[pointer]), *_written(record, pointer, values))
    ]
    return [
        item.pointer
        for item in other.disclosures
        if any(needle.is_in(item.value) for needle in needles)
    ]


def _written(record: Sealed, pointer: str, values: dict[str, Any]) -> Iterator[_Needle]:
    """Yield the texts that the record's templates write for the value of a feature."""
    match, core = _READ.fullmatch(pointer), core_fields(record.core, _FeatureReads)
    if match is None or core is None or int(match[1]) >= len(core.features):
        return
    name = core.features[int(match[1])].feature
    for place, text in values.items():
        if _TEMPLATE.fullmatch(place) and isinstance(text, str):
            try:
                texts = parse_template(text).texts_of(name, from_tagged(values[pointer]))
            except (TemplateError, RecordValueError):
                continue
            yield from (_Needle(text, text, is_number=text.isdigit()) for text in texts if text)


def _parts(record: Sealed, pointers: Iterable[str]) -> Iterator[str]:
    """Yield the pointers of the item texts that these pointers stand for."""
    for pointer in pointers:
        match = _ITEM_TEXT.fullmatch(pointer)
        if match:
            yield f"/items/{match[1]}/content"
        elif pointer == _OUTPUT:
            yield from _kept_texts(record)


def _kept_texts(record: Sealed) -> list[str]:
    """Return the pointers of the texts of all items that were not dropped."""
    core = core_fields(record.core, _Decisions)
    items = () if core is None else core.items
    dropped = {str(at) for at, item in enumerate(items) if item.decision == "dropped"}
    return [
        item.pointer
        for item in record.disclosures
        if (match := _ITEM_TEXT.fullmatch(item.pointer)) and match[1] not in dropped
    ]


def _shortened(pointers: Iterable[str], values: dict[str, Any]) -> Iterator[str]:
    """Yield the shortened texts of contents: a value may be cut in the middle there."""
    for pointer in pointers:
        emitted = pointer.removesuffix("content") + "emitted"
        if _ITEM_TEXT.fullmatch(pointer) and emitted in values:
            yield from (emitted, _OUTPUT)


def _needles(tagged: Any) -> Iterator[_Needle]:
    """Yield a value and, of a list or a dict, its leaves; of a text also its hash."""
    yield _needle(tagged)
    if isinstance(tagged, str):
        # Ids and content hashes of chunks begin like this; with them, a guess could be confirmed.
        digest = sha256(tagged.encode(errors="surrogatepass")).hexdigest()[:_HASH_DIGITS]
        yield _Needle(digest, digest)
    if isinstance(tagged, dict | list):
        for leaf in _leaves(tagged):
            if leaf not in _TRIVIAL and leaf != tagged:
                needle = _needle(leaf)
                if needle.text is None or len(needle.text) >= _SHORTEST_LEAF:
                    yield needle


def _leaves(tagged: Any) -> Iterator[Any]:
    """Yield the leaves of a value, without the keys of dicts, which are mostly field names."""
    if isinstance(tagged, list):
        for item in tagged:
            yield from _leaves(item)
    elif not isinstance(tagged, dict):
        yield tagged
    elif len(tagged) == 1 and next(iter(tagged)).startswith("$"):
        [(tag, content)] = tagged.items()
        if tag in _CONTAINER_TAGS:
            yield from _leaves(content)
        elif tag == "$map":
            yield from _leaves([item for _, item in content])
        else:
            yield tagged
    else:
        yield from _leaves(list(tagged.values()))


def _needle(tagged: Any) -> _Needle:
    try:
        value = from_tagged(tagged)
        text = as_text(value)
    except (RecordValueError, TypeError):
        return _Needle(tagged)  # altered, or of a type that templates cannot write
    return _Needle(tagged, text, isinstance(value, int | float | Decimal))


def _nodes(tagged: Any) -> Iterator[Any]:
    """Yield a value and all its parts, keys included but not the tags of types."""
    yield tagged
    if isinstance(tagged, dict):
        yield from (key for key in tagged if not key.startswith("$"))
        tagged = list(tagged.values())
    if isinstance(tagged, list):
        for item in tagged:
            yield from _nodes(item)
