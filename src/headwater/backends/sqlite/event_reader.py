"""Read the next events of a partition and the states of their entities, as two rows of JSON.

Python's SQLite module releases and takes the interpreter lock for every row, which is expensive
while another thread is busy; one row that holds everything needs it once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from headwater.core.clock import from_micros
from headwater.model.values import Cells, EntityKey, ServiceEvent
from headwater.ports import Batch, Delivery, EntityState, Lease

_EVENTS = """
SELECT CAST(json_group_array(json_array(
    seq, only_feature, event_id, event_type, entity_id, timestamp, json(CAST(payload AS TEXT)),
    traceparent
)) AS BLOB)
FROM (
    SELECT seq, only_feature, event_id, event_type, entity_id, timestamp, payload, traceparent
    FROM events
    WHERE partition = :partition AND seq > :cursor ORDER BY seq LIMIT :limit
)"""

# The states are JSON already.
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

_StoredEvent = tuple[int, str | None, str, str, str, int, dict[str, Any], str | None]
_StoredState = tuple[str, str, int, Cells]

_decode_events = msgspec.json.Decoder(list[_StoredEvent]).decode
_decode_states = msgspec.json.Decoder(list[_StoredState]).decode

_UNKNOWN = EntityState(0, {})
_EMPTY = b"[]"


class Page(NamedTuple):
    """The encoded events after a partition's cursor, and the states of their entities."""

    cursor: int
    events: bytes
    states: bytes

    @property
    def is_empty(self) -> bool:
        return self.events == _EMPTY


class PageRequest(NamedTuple):
    """The maximum number of events, and the entities whose states are read with them."""

    limit: int
    entities: str


def page_request(limit: int, touches: Mapping[str, Collection[str]]) -> PageRequest:
    """Return the request of a reader with these touches."""
    names = sorted({name for names in touches.values() for name in names})
    return PageRequest(limit, msgspec.json.encode(names).decode())


def read_page(
    execute: Callable[[str, Mapping[str, Any]], sqlite3.Cursor],
    partition: int,
    cursor: int,
    request: PageRequest,
) -> Page:
    """Return the next page of a partition."""
    where = {"partition": partition, "cursor": cursor, **request._asdict()}
    (events,) = execute(_EVENTS, where).fetchone()
    if events == _EMPTY:
        return Page(cursor, _EMPTY, _EMPTY)
    (states,) = execute(_STATES, where).fetchone()
    return Page(cursor, events, states)


def to_batch(lease: Lease, page: Page, touches: Mapping[str, Collection[str]], limit: int) -> Batch:
    """Decode a page, up to the limit, as a batch for a worker."""
    deliveries: list[Delivery] = []
    stored = islice(_decode_events(page.events), limit)
    for seq, only, event_id, event_type, entity_id, at, payload, traceparent in stored:
        event = ServiceEvent(
            event_type, entity_id, payload, from_micros(at), event_id, traceparent or UNSET
        )
        if only is None:
            deliveries.append(Delivery(str(seq), event))
        else:
            deliveries.append(Delivery(str(seq), event, *_redriven(only)))
    states = dict.fromkeys(_touched(deliveries, touches), _UNKNOWN)
    for entity, entity_id, version, cells in _decode_states(page.states):
        key = (entity, entity_id)
        if key in states:
            states[key] = EntityState(version, cells)
    return Batch(lease, deliveries, states)


def _redriven(target: str) -> tuple[str, str]:
    """Return the feature and the consumer group of a redrive."""
    group, _, feature = target.rpartition("/")
    return feature, group


def _touched(
    deliveries: Iterable[Delivery], touches: Mapping[str, Collection[str]]
) -> set[EntityKey]:
    return {
        (entity, delivery.event.entity_id)
        for delivery in deliveries
        for entity in touches.get(delivery.event.event_type, ())
    }
