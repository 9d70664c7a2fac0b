"""Redaction: values are erased for good, and a note for each says so; the hash stays valid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from types import NoneType
from typing import Annotated, Any

import msgspec

from headwater.core.canonical_json import from_tagged, to_tagged
from headwater.core.templates import MARK
from headwater.errors import InvalidInputError, RecordValueError, RedactionError
from headwater.records.record import Record, Redaction, moment_text
from headwater.records.redaction_search import ValueMatcher, begins, mention, readings

_OUTPUT = "/output/content"
_EMITTED = re.compile(r"(/items/\d+)/emitted")
_TEXT = re.compile(r"/items/(\d+)/(?:content|emitted)")


class _Item(msgspec.Struct, frozen=True):
    decision: str


class _Outline(msgspec.Struct, frozen=True):
    """The few fields of a core that redaction itself reads."""

    created_at: Annotated[datetime, msgspec.Meta(tz=True)]
    items: tuple[_Item, ...]


def redact(
    record: Record, *pointers: str, at: datetime, reason: str, by: str | None = None
) -> Record:
    """The record without the disclosures at these pointers: without all of them, or an error."""
    if type(reason) is not str or type(by) not in (str, NoneType):
        raise InvalidInputError("give reason and by as text: they stay in the record")
    if not reason.strip():
        raise InvalidInputError("say for what reason the value is redacted")
    to_tagged((reason, by), "reason or by")  # refuses what is no Unicode
    erased = dict.fromkeys(pointers)  # each once
    _check_disclosed(record, erased)
    outline = _outline(record)
    # Clocks differ from host to host, and no note is older than its record.
    moment = moment_text(at if outline is None else max(at, outline.created_at))
    notes = (
        Redaction(pointer=pointer, redacted_at=moment, reason=reason, by=by) for pointer in erased
    )
    return msgspec.structs.replace(
        record,
        disclosures=tuple(item for item in record.disclosures if item.pointer not in erased),
        redactions=(*record.redactions, *notes),
    )


def _check_disclosed(record: Record, pointers: Iterable[str]) -> None:
    disclosed = [item.pointer for item in record.disclosures]
    notes = {note.pointer: note for note in record.redactions}
    for pointer in pointers:
        if pointer in disclosed:
            continue
        note = notes.get(pointer)
        raise RedactionError(pointer, disclosed, None if note is None else _told(note))


def _told(note: Redaction) -> str:
    by = "" if note.by is None else f" by {note.by}"
    return f"at {note.redacted_at}{by}, because: {note.reason}"


def _outline(record: Record) -> _Outline | None:
    """None of a core that cannot be read: its values can be erased all the same."""
    try:
        return msgspec.json.decode(record.core, type=_Outline)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def also_disclosed(record: Record, *pointers: str) -> list[str]:
    """The other pointers that disclose the value of one of these, or a text with it inside.

    A shortened text and its item's content disclose each other, and the output all its items.
    """
    values = {item.pointer: item.value for item in record.disclosures}
    wanted = [
        mention(value)
        for pointer in pointers
        if _tells(value := _unmarked(pointer, values.get(pointer)))
    ]
    others = {*_begun(values, wanted), *_whole(pointers)}
    if _OUTPUT in pointers:
        others.update(_joined(record, values))
    return [
        pointer
        for pointer, value in values.items()
        if pointer not in pointers and (pointer in others or _mentions(value, wanted))
    ]


def _tells(tagged: Any) -> bool:
    """Nothing, yes and no say nothing of anybody, whatever kind of number says them."""
    try:
        value = from_tagged(tagged)
    except RecordValueError:
        return True  # somebody altered it
    if isinstance(value, Decimal) and not value.is_finite():
        return True  # some of these refuse to be compared
    return bool(tagged) and value not in (0, 1)


def _unmarked(pointer: str, value: Any) -> Any:
    """A value as it stands elsewhere: there, a shortened text goes on and has no mark."""
    shortened = isinstance(value, str) and _EMITTED.fullmatch(pointer)
    return value.removesuffix(MARK) if shortened else value


def _whole(pointers: Iterable[str]) -> Iterator[str]:
    """Where the contents stand of which these are the shortened texts."""
    return (f"{item[1]}/content" for each in pointers if (item := _EMITTED.fullmatch(each)))


def _joined(record: Record, values: dict[str, Any]) -> Iterator[str]:
    """Where the items stand that the output was joined of, and whatever is the same as one."""
    outline = _outline(record)
    items = () if outline is None else outline.items
    dropped = {str(at) for at, item in enumerate(items) if item.decision == "dropped"}
    parts = {
        pointer
        for pointer in values
        if (item := _TEXT.fullmatch(pointer)) and item[1] not in dropped
    }
    texts = [text for pointer in parts if (text := values[pointer])]
    return (pointer for pointer, value in values.items() if pointer in parts or value in texts)


def _mentions(value: Any, wanted: Sequence[ValueMatcher]) -> bool:
    return any(each.find(text) >= 0 for text in readings(value) for each in wanted)


def _begun(values: dict[str, Any], wanted: Sequence[ValueMatcher]) -> Iterator[str]:
    """Where one of these values was cut: an item that was shortened, and the output with it."""
    for pointer, emitted in values.items():
        item = _EMITTED.fullmatch(pointer)
        whole = values.get(f"{item[1]}/content") if item else None
        if not (isinstance(whole, str) and isinstance(emitted, str)):
            continue
        if begins(wanted, whole, emitted.removesuffix(MARK)):
            yield from (pointer, _OUTPUT)
