"""Bodies of the routes that publish events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from headwater.api.kinds import EntityId, EventId, EventType, Payload
from headwater.core.tracing import TRACEPARENT

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

EventTime = Annotated[
    datetime,
    Meta(
        tz=True,
        description="When it happened, at most 5 minutes in the future; now if it is left out.",
        examples=["2026-01-15T09:23:12Z"],
    ),
]

TraceParent = Annotated[
    str,
    Meta(
        description="The W3C trace context of the event, in place of that of the header.",
        examples=["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"],
        extra_json_schema={"pattern": f"^(?:{TRACEPARENT.pattern})$"},
    ),
]


class EventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of an entity."""

    entity_id: EntityId
    payload: Payload = {}
    timestamp: EventTime | None = None
    event_id: EventId | None = None
    traceparent: TraceParent | None = None
    """The W3C trace context of the event, in place of the header's."""


class BatchItem(EventBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of a batch."""

    event_type: EventType


class AcceptedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that is durable; ``duplicate`` if it was published before.

    ``hint`` is there if no feature is triggered by the event type and a similar one triggers some.
    """

    event_id: EventId
    event_type: EventType
    entity_id: EntityId
    timestamp: datetime
    duplicate: bool
    hint: str | None = None


class AcceptedEvents(msgspec.Struct, frozen=True):
    """The events of a batch, in the order they were sent."""

    events: list[AcceptedEvent]
