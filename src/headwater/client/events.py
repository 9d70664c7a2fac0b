"""The verbs of a client that publish events."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

import msgspec
from msgspec import UNSET

from headwater.client.server import Request, Server, ServerVerbs, sending
from headwater.core.clock import Clock
from headwater.core.durations import Duration, to_timedelta
from headwater.errors import CallerLimitError, EventConflict, EventConflictError, EventError
from headwater.model.declarations import StoreListing
from headwater.model.events import (
    AcceptedEvent,
    AcceptedEvents,
    BatchItem,
    EventArguments,
    PublishResult,
    new_event,
)
from headwater.model.values import ServiceEvent, is_time_assigned
from headwater.store.verbs.events import EventVerbs, PublishVerbs

LARGEST_BODY = 512 * 1024
"""The bytes of events in one request: half of the default limit of a body."""

_MOST_EVENTS = 1_000


class EventCalls(ServerVerbs, EventVerbs):
    """``client.bus``: publish events that were built beforehand, and read the log of events.

    Every event has an id, so a request whose outcome is unknown is sent again, and an event counts
    once.
    """

    @sending(EventVerbs.publish_many)
    async def publish_many(
        self, events: Sequence[ServiceEvent], wait: Duration | None, **_dedup: bool
    ) -> list[PublishResult]:
        return [result_of(each) for each in await self.send(events, wait)]

    async def send(
        self, events: Sequence[ServiceEvent], wait: Duration | None = None
    ) -> list[AcceptedEvent]:
        """Publish events; return the server's answer for each."""
        accepted: list[AcceptedEvent] = []
        span = None if wait is None else to_timedelta(wait)
        ends = None if span is None else time.monotonic() + span.total_seconds()
        conflicts: list[EventConflict] = []
        begin = 0
        for size, body in bodies(events):
            try:
                accepted += await send_body(self._server, body, wait=_rest(ends))
            except EventConflictError as error:
                conflicts += [
                    dataclasses.replace(each, index=begin + each.index) for each in error.conflicts
                ]
            except EventError as error:
                raise error.at(begin + (error.index or 0)) from error
            except CallerLimitError as error:
                error.index = begin + (error.index or 0) if len(events) > 1 else None
                raise
            begin += size
        if conflicts:
            raise EventConflictError(conflicts, len(events))
        return accepted

    async def _schemas(self) -> Mapping[str, Mapping[str, Any]]:
        listed = await self._server.get(StoreListing, "/api/store")
        return {each.name: each.schema for each in listed.events if each.schema is not None}


class PublishCalls(PublishVerbs):
    """The part of a client that publishes one event."""

    bus: EventCalls
    clock: Clock

    async def _publish_event(
        self, given: EventArguments, wait: Duration | None
    ) -> tuple[ServiceEvent, PublishResult]:
        event = new_event(self.clock, *given)
        (accepted,) = await self.bus.send([event], wait)
        event = msgspec.structs.replace(event, timestamp=accepted.timestamp, assigned_time=UNSET)
        return event, result_of(accepted)


def result_of(accepted: AcceptedEvent) -> PublishResult:
    """Return the result of an event that a server has accepted."""
    return PublishResult(
        accepted.event_id,
        accepted.duplicate,
        visible=accepted.visible,
        problem=accepted.problem,
    )


def _rest(ends: float | None) -> timedelta | None:
    """Return how long the next request may wait; the server needs a positive time."""
    if ends is None:
        return None
    return max(timedelta(seconds=ends - time.monotonic()), timedelta(milliseconds=1))


async def send_body(
    server: Server, body: bytes, retries: int | None = None, wait: timedelta | None = None
) -> list[AcceptedEvent]:
    """Publish the events of a body."""
    waits = 0.0 if wait is None else wait.total_seconds()
    query = {"wait": f"{max(1, round(waits * 1_000))}ms"} if waits else {}
    request = Request("POST", "/ingest", query, body, is_repeatable=True, waits=waits)
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
