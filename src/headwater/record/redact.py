"""Redaction: one value is erased for good, and a note says so; the hash stays valid."""

from __future__ import annotations

import re
from datetime import datetime
from types import NoneType
from typing import Any

import msgspec

from headwater.canonical import canonical, to_tagged
from headwater.errors import InvalidInputError, RedactionError
from headwater.record.parts import Record, Redaction, moment_text

_NUMBERS = ("$int", "$float", "$decimal")


def redact(
    record: Record, pointer: str, *, at: datetime, reason: str, by: str | None = None
) -> Record:
    """The record without the disclosure at this pointer."""
    if type(reason) is not str or type(by) not in (str, NoneType):
        raise InvalidInputError("give reason and by as text: they stay in the record")
    to_tagged((reason, by), "reason or by")  # refuses what is no Unicode
    kept = tuple(item for item in record.disclosures if item.pointer != pointer)
    if len(kept) == len(record.disclosures):
        raise RedactionError(pointer, (item.pointer for item in record.disclosures))
    note = Redaction(pointer=pointer, redacted_at=moment_text(at), reason=reason, by=by)
    return msgspec.structs.replace(record, disclosures=kept, redactions=(*record.redactions, note))


def also_disclosed(record: Record, pointer: str) -> list[str]:
    """The other pointers at which the value of this one, or a text with it inside, is disclosed."""
    values = {item.pointer: item.value for item in record.disclosures}
    wanted = values.pop(pointer, None)
    if not wanted or wanted == 1:
        return []  # nothing, yes and no say nothing of anybody
    pattern = _pattern(wanted)
    return [other for other, value in values.items() if pattern.search(canonical(value))]


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
