"""What lies in the streams, and how it becomes events and batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, starmap
from typing import Any, NamedTuple

import msgspec

from headwater.core.clock import from_micros
from headwater.core.values import MALFORMED, EntityKey, ServiceEvent, decode_cells
from headwater.errors import EventError
from headwater.ports import Batch, Change, Delivery, EntityState, Lease

_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(ServiceEvent).decode
_UNKNOWN = EntityState(0, {})
_VERSION_DIGITS = 16
_MILLISECOND = 1_000
# Type, entity id, JSON and, for a redrive, the only feature: each after its name.
_EVENT_FIELDS = [b"t", b"k", b"e"]
_REDRIVE_FIELDS = [*_EVENT_FIELDS, b"o"]

Entry = tuple[bytes, list[bytes]]


def event_fields(event: ServiceEvent, only: str = "") -> tuple[str, str, bytes, str]:
    """An event's type, entity id, JSON, and the only feature it is for."""
    return event.event_type, event.entity_id, _encode(event), only


def changes_json(changes: Iterable[Change]) -> bytes:
    """Changes as rows of history, or nothing if there are none."""
    rows = [
        (
            change.feature,
            change.entity,
            change.entity_id,
            change.kind,
            change.cell.value,
            change.cell.as_of,
            change.cell.written_at,
            change.cause,
        )
        for change in changes
    ]
    return _encode(rows) if rows else b""


def written_state(version: int, cells: bytes) -> bytes:
    """A state as it lies in Redis: its version in sixteen digits, then its cells."""
    return f"{version:0{_VERSION_DIGITS}d}".encode() + cells


def version_mark(version: int) -> str:
    """What the state of this version begins with; nothing for an entity without one."""
    return f"{version:0{_VERSION_DIGITS}d}" if version else ""


def read_version(state: bytes | None) -> int:
    return int(state[:_VERSION_DIGITS]) if state else 0


def read_cells(state: bytes | None) -> bytes:
    return state[_VERSION_DIGITS:] if state else b"{}"


def read_state(state: bytes | None) -> EntityState:
    """A version and its cells."""
    return EntityState(read_version(state), decode_cells(read_cells(state))) if state else _UNKNOWN


def lease_text(lease: Lease) -> str:
    """A lease as the scripts compare it."""
    return f"{lease.owner}:{lease.epoch}"


class StreamPage(NamedTuple):
    """What follows a partition's cursor, not decoded yet."""

    lease: Lease
    cursor: bytes
    entries: Sequence[bytes | list[bytes]]
    """Four of each: its place, and its event's type, entity id and JSON, or all its fields."""
    touched: Sequence[bytes]
    states: Sequence[bytes | None]


def to_batch(page: StreamPage, limit: int) -> Batch:
    """A page, or as much of it as the limit allows, as the batch that a worker gets."""
    flat: Iterator[Any] = iter(page.entries)
    deliveries = list(starmap(_delivery, islice(zip(flat, flat, flat, flat, strict=True), limit)))
    own = {delivery.event.entity_id for delivery in deliveries}
    states: dict[EntityKey, EntityState] = {}
    touched = iter(page.touched)
    for entity, entity_id, state in zip(touched, touched, page.states, strict=True):
        key = (entity.decode(), entity_id.decode(errors="replace"))
        if key[1] in own:
            states[key] = read_state(state)
    return Batch(page.lease, deliveries, states)


def _delivery(
    place: bytes, event_type: bytes | list[bytes], entity_id: bytes, text: bytes
) -> Delivery:
    position = place.decode()
    if isinstance(event_type, list):
        return _other_delivery(position, event_type)
    event = _checked(event_type, entity_id, text)
    if isinstance(event, str):
        fields = (b"t", event_type, b"k", entity_id, b"e", text)
        return Delivery(position, _malformed(position, fields, event))
    return Delivery(position, event)


def _other_delivery(position: str, fields: list[bytes]) -> Delivery:
    event = read_event(fields)
    if isinstance(event, str):
        return Delivery(position, _malformed(position, fields, event))
    return Delivery(position, event, fields[7].decode())


def read_event(fields: list[bytes]) -> ServiceEvent | str:
    """The event in an entry's fields, or what is wrong with them."""
    names = fields[::2]
    if names != _EVENT_FIELDS and names != _REDRIVE_FIELDS:
        return "its fields are not those of an event"
    return _checked(fields[1], fields[3], fields[5])


def _checked(event_type: bytes, entity_id: bytes, text: bytes) -> ServiceEvent | str:
    try:
        event = _decode_event(text)
    except (msgspec.MsgspecError, EventError, UnicodeDecodeError) as error:
        return str(error)
    if event.entity_id.encode() != entity_id or event.event_type.encode() != event_type:
        return "its type or entity id differs from its event's"
    return event


def _malformed(position: str, fields: Sequence[bytes], problem: str) -> ServiceEvent:
    texts = [field.decode(errors="backslashreplace") for field in fields]
    payload: dict[str, Any] = {"problem": f"malformed entry: {problem}", "fields": texts}
    return ServiceEvent(MALFORMED, position, payload, from_micros(received_at(position)))


def received_at(position: str) -> int:
    """The moment in a position, in microseconds."""
    return int(position.partition("-")[0]) * _MILLISECOND
