"""The verbs of a client that publish events."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec
from msgspec import UNSET

from headwater.client.server import Request, Server
from headwater.core.clock import Clock
from headwater.errors import CallerLimitError, EventConflict, EventConflictError, EventError
from headwater.model.events import (
    AcceptedEvent,
    AcceptedEvents,
    BatchItem,
    PublishResult,
    payload_of,
)
from headwater.model.values import ServiceEvent, is_time_assigned, is_whole_number, timing
from headwater.store.verbs.events import EventLogVerbs

LARGEST_BODY = 512 * 1024
"""The bytes of events in one request: half of the default limit of a body."""

_MOST_EVENTS = 1_000


class EventCalls(EventLogVerbs):
    """``client.bus``: publish events that were built beforehand, and read the log of events.

    Every event has an id, so a request whose outcome is unknown is sent again, and an event counts
    once.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

    async def publish(self, event: ServiceEvent) -> PublishResult:
        """Publish an event; when this returns, the event is durable.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> await client.bus.publish(event)
        PublishResult(event_id='...', duplicate=False)
        """
        (published,) = await self.publish_many([event])
        return published

    async def publish_many(
        self, events: Sequence[ServiceEvent], *, dedup: bool = True
    ) -> list[PublishResult]:
        """Publish events; a repeated event id within the window counts once.

        Many events are sent in several requests, each of which is stored as a whole or not at all.
        Events that repeat an id of their entity with other content, or whose entity was erased, are
        an exception: EventConflictError names them, all others are stored. ``dedup`` has no effect
        here, because every request may have to be repeated.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> [result.duplicate for result in await client.bus.publish_many([event, event])]
        [False, True]
        """
        return [result_of(each) for each in await self.send(events)]

    async def send(self, events: Sequence[ServiceEvent]) -> list[AcceptedEvent]:
        """Publish events; return the server's answer for each."""
        accepted: list[AcceptedEvent] = []
        conflicts: list[EventConflict] = []
        begin = 0
        for size, body in bodies(events):
            try:
                accepted += await send_body(self._server, body)
            except EventConflictError as error:
                conflicts += [
                    dataclasses.replace(each, index=begin + each.index) for each in error.conflicts
                ]
            except EventError as error:
                raise EventError(str(error.problem), begin + (error.index or 0)) from error
            except CallerLimitError as error:
                error.index = begin + (error.index or 0) if len(events) > 1 else None
                raise
            begin += size
        if conflicts:
            raise EventConflictError(conflicts, len(events))
        return accepted


class PublishCalls:
    """The part of a client that publishes one event."""

    bus: EventCalls
    clock: Clock

    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: Mapping[str, Any] | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent:
        """Publish an event about an entity; when this returns, the event is durable.

        Without a ``timestamp`` the event gets the time of the server.

        >>> event = await client.publish("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> event.entity_id
        'ada'
        """
        fields = timing(timestamp, self.clock)
        if event_id is not None:
            fields["event_id"] = event_id
        if type(entity_id) is not str and is_whole_number(entity_id):
            entity_id = str(int(entity_id))
        # Any other id is refused by the event.
        event = ServiceEvent(event_type, cast("str", entity_id), payload_of(payload), **fields)
        (accepted,) = await self.bus.send([event])
        return msgspec.structs.replace(event, timestamp=accepted.timestamp, assigned_time=UNSET)


async def send_body(server: Server, body: bytes, retries: int | None = None) -> list[AcceptedEvent]:
    """Publish the events of a body."""
    request = Request("POST", "/ingest", {}, body, is_repeatable=True)
    return server.decoded(AcceptedEvents, await server.send(request, retries)).events


def bodies(events: Sequence[ServiceEvent]) -> Iterator[tuple[int, bytes]]:
    """Yield bodies of requests for events, in order, each with its number of events."""
    items: list[bytes] = []
    size = 0
    for event in events:
        item = encoded(event)
        if items and (len(items) == _MOST_EVENTS or size + len(item) > LARGEST_BODY):
            yield len(items), joined(items)
            items, size = [], 0
        items.append(item)
        size += len(item) + 1
    if items:
        yield len(items), joined(items)


def joined(items: Sequence[bytes]) -> bytes:
    """Return a body of encoded events."""
    return b"[" + b",".join(items) + b"]"


def encoded(event: ServiceEvent) -> bytes:
    """Return an event as an item of a body; the server sets a time that the sender did not give."""
    item = BatchItem(
        event_type=event.event_type,
        entity_id=event.entity_id,
        payload=event.payload,
        timestamp=None if is_time_assigned(event) else event.timestamp,
        event_id=event.event_id,
        traceparent=event.traceparent or None,
    )
    try:
        return msgspec.json.encode(item)
    except (TypeError, ValueError, RecursionError) as error:
        raise EventError(f"the payload of event {event.event_id} is not JSON: {error}") from error


def result_of(accepted: AcceptedEvent) -> PublishResult:
    """Return the result of an event that the server accepted."""
    return PublishResult(accepted.event_id, accepted.duplicate)
