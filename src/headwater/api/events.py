"""Bodies of the routes that publish events."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")


class EventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of an entity."""

    entity_id: str
    payload: dict[str, Any] = {}
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    event_id: str | None = None
    traceparent: str | None = None
    """The W3C trace context of the event, in place of the header's."""


class BatchItem(EventBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An event of a batch."""

    event_type: str


class AcceptedEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that is durable; ``duplicate`` if it was published before.

    ``hint`` is there if no feature is triggered by the event type and a similar one triggers some.
    """

    event_id: str
    event_type: str
    entity_id: str
    timestamp: datetime
    duplicate: bool
    hint: str | None = None


class AcceptedEvents(msgspec.Struct, frozen=True):
    """The events of a batch, in the order they were sent."""

    events: list[AcceptedEvent]
