"""Redaction: values are erased for good, and a note for each says so; the hash stays valid."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import NoneType
from typing import Any

import msgspec

from headwater.canonical import canonical, to_tagged
from headwater.errors import InvalidInputError, RedactionError
from headwater.record.parts import Record, Redaction, moment_text
from headwater.tokens import MARK

_EMITTED = re.compile(r"(/items/\d+)/emitted")
_NUMBERS = ("$int", "$float", "$decimal")


def redact(
    record: Record, *pointers: str, at: datetime, reason: str, by: str | None = None
) -> Record:
    """The record without the disclosures at these pointers: without all of them, or an error."""
    if type(reason) is not str or type(by) not in (str, NoneType):
        raise InvalidInputError("give reason and by as text: they stay in the record")
    to_tagged((reason, by), "reason or by")  # refuses what is no Unicode
    erased = dict.fromkeys(pointers)  # each once
    _check_disclosed(record, erased)
    notes = (
        Redaction(pointer=pointer, redacted_at=moment_text(at), reason=reason, by=by)
        for pointer in erased
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


def also_disclosed(record: Record, *pointers: str) -> list[str]:
    """The other pointers that disclose the value of one of these, or a text with it inside."""
    values = {item.pointer: item.value for item in record.disclosures}
    # Nothing, yes and no say nothing of anybody.
    wanted = [value for pointer in pointers if (value := values.get(pointer)) and value != 1]
    patterns = [_pattern(value) for value in wanted]
    begun = set(_begun(values, [value for value in wanted if isinstance(value, str)]))
    return [
        pointer
        for pointer, value in values.items()
        if pointer not in pointers
        and (pointer in begun or any(pattern.search(canonical(value)) for pattern in patterns))
    ]


def _begun(values: dict[str, Any], texts: list[str]) -> Iterator[str]:
    """Where one of these texts was cut: an item that was shortened, and the output with it."""
    for pointer, emitted in values.items():
        item = _EMITTED.fullmatch(pointer)
        whole = values.get(f"{item[1]}/content") if item else None
        if not (isinstance(whole, str) and isinstance(emitted, str)):
            continue
        shown = len(emitted.removesuffix(MARK))
        if any(0 <= whole.find(text) < shown for text in texts):
            yield from (pointer, "/output/content")


def _pattern(wanted: Any) -> re.Pattern[bytes]:
    """What is found in the JSON text of everything that has a value inside."""
    text = canonical(wanted)
    if isinstance(wanted, str):
        return re.compile(re.escape(text[1:-1]))
    number = _number(wanted)
    if number is None:
        return re.compile(re.escape(text))
    return re.compile(rb"(?<![\w.])" + re.escape(number.encode()) + rb"(?!\w|\.\d)")


def _number(tagged: Any) -> str | None:
    """How a number reads in a text; None if it is none."""
    if type(tagged) is int:
        return str(tagged)
    content = [tagged[tag] for tag in _NUMBERS if isinstance(tagged, dict) and tag in tagged]
    return str(content[0]) if content else None
