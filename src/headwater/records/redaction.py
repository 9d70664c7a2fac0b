"""Redaction: erase values of a record for good and note each one; the hash stays valid."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from types import NoneType
from typing import Annotated

import msgspec

from headwater.core.canonical_json import to_tagged
from headwater.errors import InvalidInputError, RedactionError
from headwater.records.record import Record, Redaction, moment_text


class _Created(msgspec.Struct, frozen=True):
    """The field of a core that redaction reads."""

    created_at: Annotated[datetime, msgspec.Meta(tz=True)]


def redact(
    record: Record, *pointers: str, at: datetime, reason: str, by: str | None = None
) -> Record:
    """Return the record without the disclosures at these pointers.

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
    _check_disclosed(record, erased)
    # Clocks differ from host to host, and a note must not be older than its record.
    moment = moment_text(max(at, _created_at(record) or at))
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
        raise RedactionError(pointer, disclosed, None if note is None else _earlier(note))


def _earlier(note: Redaction) -> str:
    by = "" if note.by is None else f" by {note.by}"
    return f"at {note.redacted_at}{by}, because: {note.reason}"


def _created_at(record: Record) -> datetime | None:
    """Return None for a core that cannot be read: its values can be erased nevertheless."""
    try:
        return msgspec.json.decode(record.core, type=_Created).created_at
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
