"""Reading the next events of a partition, with their entities' states, as two rows of JSON.

Python's SQLite module hands the interpreter's lock over for each row it steps to, and beside a busy
thread that costs more than all else; a row that holds everything is stepped to once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from headwater.core.clock import from_micros
from headwater.core.values import Cells, EntityKey, ServiceEvent
from headwater.ports import Batch, Delivery, EntityState, Lease

_EVENTS = """
SELECT CAST(json_group_array(json_array(
    seq, only_feature, event_id, event_type, entity_id, timestamp, json(CAST(payload AS TEXT))
)) AS BLOB)
FROM (
    SELECT seq, only_feature, event_id, event_type, entity_id, timestamp, payload FROM events
    WHERE partition = :partition AND seq > :cursor ORDER BY seq LIMIT :limit
)"""

# The states are JSON already and are put in as such.
_STATES = """
SELECT CAST('[' || coalesce(group_concat(
    '[' || json_quote(entity) || ',' || json_quote(entity_id) || ',' || version || ','
    || CAST(state AS TEXT) || ']'
), '') || ']' AS BLOB)
FROM entities
WHERE entity IN (SELECT value FROM json_each(:entities)) AND entity_id IN (
    SELECT entity_id FROM events
    WHERE partition = :partition AND seq > :cursor ORDER BY seq LIMIT :limit
)"""

_StoredEvent = tuple[int, str | None, str, str, str, int, dict[str, Any]]
_StoredState = tuple[str, str, int, Cells]

_decode_events = msgspec.json.Decoder(list[_StoredEvent]).decode
_decode_states = msgspec.json.Decoder(list[_StoredState]).decode

_UNKNOWN = EntityState(0, {})
_NOTHING = b"[]"


class Page(NamedTuple):
    """What follows a partition's cursor, not decoded yet."""

    cursor: int
    events: bytes
    states: bytes

    @property
    def empty(self) -> bool:
        return self.events == _NOTHING


class PageRequest(NamedTuple):
    """How much of a partition is wanted, and which entities' states with it."""

    limit: int
    entities: str


def wanted(limit: int, touches: Mapping[str, Collection[str]]) -> PageRequest:
    """What a reader with these touches wants."""
    names = sorted({name for names in touches.values() for name in names})
    return PageRequest(limit, msgspec.json.encode(names).decode())


def read_page(
    execute: Callable[[str, Mapping[str, Any]], sqlite3.Cursor],
    partition: int,
    cursor: int,
    want: PageRequest,
) -> Page:
    """The next page of a partition."""
    where = {"partition": partition, "cursor": cursor, **want._asdict()}
    (events,) = execute(_EVENTS, where).fetchone()
    if events == _NOTHING:
        return Page(cursor, _NOTHING, _NOTHING)
    (states,) = execute(_STATES, where).fetchone()
    return Page(cursor, events, states)


def to_batch(lease: Lease, page: Page, touches: Mapping[str, Collection[str]], limit: int) -> Batch:
    """A page, or as much of it as the limit allows, as the batch that a worker gets."""
    deliveries = [
        Delivery(
            str(seq), ServiceEvent(event_type, entity_id, payload, from_micros(at), event_id), only
        )
        for seq, only, event_id, event_type, entity_id, at, payload in islice(
            _decode_events(page.events), limit
        )
    ]
    states = dict.fromkeys(_touched(deliveries, touches), _UNKNOWN)
    for entity, entity_id, version, cells in _decode_states(page.states):
        key = (entity, entity_id)
        if key in states:
            states[key] = EntityState(version, cells)
    return Batch(lease, deliveries, states)


def _touched(
    deliveries: Iterable[Delivery], touches: Mapping[str, Collection[str]]
) -> set[EntityKey]:
    return {
        (entity, delivery.event.entity_id)
        for delivery in deliveries
        for entity in touches.get(delivery.event.event_type, ())
    }
