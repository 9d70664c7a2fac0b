"""The streams of partitions: appending events, reading pages, the form of entries and states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from headwater.backends.redis.client import Call, Redis, script_call
from headwater.backends.redis.keys import Keys
from headwater.core.clock import MICROSECOND, Clock, from_micros
from headwater.core.codec import encode_custom
from headwater.errors import EventError
from headwater.model.values import (
    MALFORMED,
    EntityKey,
    ServiceEvent,
    decode_cells,
    without_assigned_time,
)
from headwater.ports import (
    Batch,
    Change,
    Delivery,
    DocumentWrite,
    EntityState,
    Lease,
    event_content,
    history_rows,
)

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode
_decode_event = msgspec.json.Decoder(ServiceEvent).decode
_UNKNOWN = EntityState(0, {})
_VERSION_DIGITS = 16
MILLISECOND = 1_000
_MOST_DOCUMENT_BYTES = 16 << 20
# The outbox consumer holds the pages of several partitions in memory at once, as does Postgres.
_MOST_PAGE_BYTES = 1 << 20
_KEY_BYTES = 16
_UNCHECKED = 2**53
"""For events that were accepted before, which workers compare with the erasures."""
# Names of the fields: type, entity id, JSON and, for a redrive, the only group and feature.
_EVENT_FIELDS = [b"t", b"k", b"e"]
_REDRIVE_FIELDS = [*_EVENT_FIELDS, b"o"]

Entry = tuple[bytes, list[bytes]]
Touches = Mapping[bytes, Sequence[str]]
"""The entities whose states the handlers of each event type need, in a fixed order."""


def event_fields(event: ServiceEvent, only: str = "") -> tuple[str, str, bytes, str]:
    """Return an event's type, entity id, JSON, and the only feature it is for."""
    return event.event_type, event.entity_id, _encode(without_assigned_time(event)), only


def changes_json(changes: Iterable[Change]) -> bytes:
    """Encode changes as rows of history; return b"" if there are none."""
    rows = history_rows(changes, lambda value: value)
    return _encode(rows) if rows else b""


def documents_json(writes: Sequence[DocumentWrite]) -> list[bytes]:
    """Encode writes of documents as JSON arrays, in their order.

    All are in one array, so that they take effect together, unless this would become too large
    for the memory of the process that applies them.
    """
    arrays: list[bytes] = []
    size, start = 0, 0
    encoded = [_encode(write) for write in writes]
    for end, text in enumerate(encoded):
        if size and size + len(text) > _MOST_DOCUMENT_BYTES:
            arrays.append(_array(encoded[start:end]))
            size, start = 0, end
        size += len(text)
    return [*arrays, _array(encoded[start:])] if encoded else []


def _array(items: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(items) + b"]"


def encode_state(version: int, cells: bytes) -> bytes:
    """Encode a state: its version in sixteen digits, then its cells."""
    return b"%016d%b" % (version, cells)


def read_version(state: bytes | None) -> int:
    return int(state[:_VERSION_DIGITS]) if state else 0


def read_cells(state: bytes | None) -> bytes:
    return state[_VERSION_DIGITS:] if state else b"{}"


def read_state(state: bytes | None) -> EntityState:
    """Decode a state."""
    if not state:
        return _UNKNOWN
    return EntityState(int(state[:_VERSION_DIGITS]), decode_cells(state[_VERSION_DIGITS:]))


def lease_text(lease: Lease) -> str:
    """Return a lease in the form that the scripts compare."""
    return f"{lease.owner}:{lease.epoch}"


class StreamPage(NamedTuple):
    """The encoded events after a partition's cursor, and the states of their entities."""

    lease: Lease
    touches: Touches
    cursor: bytes
    entries: Sequence[bytes | list[bytes]]
    """Four items per entry: position, type, entity id and JSON; or all fields in place of JSON."""
    states: Sequence[bytes | None] | None
    """Those of each entity that the entries touch, in the order in which they first do; None before
    they are read."""


def state_names(page: StreamPage, prefix: bytes) -> list[bytes]:
    """Return the keys of the states that a page needs; ``prefix`` is that of the partition."""
    flat: Iterator[Any] = iter(page.entries)
    touched = {
        (entity, entity_id): None
        for _, event_type, entity_id, _ in zip(flat, flat, flat, flat, strict=True)
        for entity in page.touches.get(event_type, ())
    }
    return [b"%b%b:%b" % (prefix, entity.encode(), entity_id) for entity, entity_id in touched]


def to_batch(page: StreamPage, limit: int) -> Batch:
    """Decode a page, up to the limit, as a batch for a worker."""
    deliveries: list[Delivery] = []
    states: dict[EntityKey, EntityState] = {}
    touches, stored = page.touches, iter(page.states or ())
    flat: Iterator[Any] = iter(page.entries)
    entries = zip(flat, flat, flat, flat, strict=True)
    for position, event_type, raw_id, content in islice(entries, limit):
        delivery = _delivery(position.decode(), event_type, raw_id, content)
        deliveries.append(delivery)
        for entity in touches.get(event_type, ()):
            entity_id = delivery.event.entity_id
            if delivery.event.event_type == MALFORMED:
                # The script has read a state for it; different bytes are different ids.
                entity_id = raw_id.decode(errors="surrogateescape")
            if (entity, entity_id) not in states:
                states[entity, entity_id] = read_state(next(stored))
    return Batch(page.lease, deliveries, states)


def _delivery(
    position: str, event_type: bytes, entity_id: bytes, content: bytes | list[bytes]
) -> Delivery:
    if isinstance(content, bytes):
        event = _decode_checked(event_type, entity_id, content)
        if isinstance(event, ServiceEvent):
            return Delivery(position, event)
        content = [b"t", event_type, b"k", entity_id, b"e", content]
    else:
        event = read_event(content)
        if isinstance(event, ServiceEvent):
            group, _, feature = content[7].decode().rpartition("/")
            return Delivery(position, event, feature or None, group)
    return Delivery(position, _malformed(position, content, event))


def read_event(fields: list[bytes]) -> ServiceEvent | str:
    """Return the event in an entry's fields, or a text that says why they are invalid."""
    names = fields[::2]
    if names != _EVENT_FIELDS and names != _REDRIVE_FIELDS:
        return "its fields are not those of an event"
    return _decode_checked(fields[1], fields[3], fields[5])


def _decode_checked(event_type: bytes, entity_id: bytes, text: bytes) -> ServiceEvent | str:
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
    """Return the time in a position, in microseconds."""
    return int(position.partition("-")[0]) * MILLISECOND


async def next_entries(
    redis: Redis,
    key: str,
    after: str,
    limit: int,
    *,
    newest_first: bool = False,
    upto: int | str = "",
) -> tuple[list[Entry], bool]:
    """Return the entries after a position ("" for the start), and whether more follow.

    With ``upto``, only those up to a millisecond.
    """
    arguments = (after, limit, _MOST_PAGE_BYTES, int(newest_first), upto)
    entries, more = await redis.call(script_call("page", [key], *arguments))
    return entries, bool(more)


class StreamPublisher:
    """Builder of the calls that append events, each id once within the dedup window."""

    def __init__(self, keys: Keys, clock: Clock, dedup_limit: int) -> None:
        self._keys = keys
        self._clock = clock
        self._dedup_limit = max(1, dedup_limit // keys.partitions)

    def call(
        self,
        partition: int,
        events: Sequence[ServiceEvent],
        dedup_window: timedelta | None,
        only: str = "",
        checked: int = _UNCHECKED,
        *,
        positions: bool = False,
    ) -> Call:
        """Return the call for events of one partition, for all features or for some ``only``.

        That is ``group/feature``, or ``group/`` for all features of a consumer group.

        ``checked`` is the number of erasures that the events were compared with.
        """
        keys, now = self._keys.parts[partition], self._clock.micros()
        names = [keys.events, keys.seen, keys.accepted, keys.idle, keys.erasures]
        if only:
            names.append(keys.unhandled(only.rpartition("/")[0]))
        window_end = 0 if dedup_window is None else now + dedup_window // MICROSECOND
        arguments: list[Any] = []
        for event in events:
            seen = (event_key(event), event_content(event)) if window_end else ("", "")
            arguments += (*seen, *event_fields(event, only))
        return script_call(
            "publish",
            names,
            *(self._keys.wake, partition, now, window_end, self._dedup_limit, checked),
            *(int(positions), *arguments),
        )

    def remembering(
        self, partition: int, events: Sequence[ServiceEvent], dedup_window: timedelta | None
    ) -> Call:
        """Return the call that recognizes repetitions of events which are not appended."""
        keys, window = self._keys.parts[partition], dedup_window or timedelta()
        seen = [
            part for event in events if window for part in (event_key(event), event_content(event))
        ]
        window_end = self._clock.micros() + window // MICROSECOND
        return script_call("remember", [keys.seen, keys.accepted], window_end, *seen)


def event_key(event: ServiceEvent) -> bytes:
    """Return the key under which an event is remembered, of a fixed size."""
    name = f"{event.event_id}\0{event.entity_id}"
    return blake2b(name.encode(), digest_size=_KEY_BYTES).digest()
