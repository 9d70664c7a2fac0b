"""Routes that publish events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial

import msgspec

from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import DurationError, EventConflictError, EventError, FieldError
from headwater.http.routing.request_errors import BacklogError, MalformedError, StoreFullError
from headwater.http.routing.request_parsing import Upload, decode_json
from headwater.http.routing.route import JSON_TYPES, Route
from headwater.model.events import NDJSON_TYPES, AcceptedEvent, AcceptedEvents, BatchItem, EventBody
from headwater.model.kinds import EventType, Wait
from headwater.model.values import ServiceEvent, timing
from headwater.store.feature_store import FeatureStore

# Counting the backlog takes longer than publishing an event, and a long one takes longer.
_BACKLOG_SECONDS = 0.5
_PAUSES_PER_COUNT = 20
_MEMORY_SECONDS = 5.0
_UNMEASURED = "allow MEMORY USAGE, SCAN and DBSIZE in Redis, or do not set redis.max_memory"

_decoder = msgspec.json.Decoder(BatchItem)


class Ingest:
    """Publishes one event, or a batch as a whole."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._backlog = BacklogLimit(store)
        self._memory = MemoryLimit(store)

    def routes(self) -> list[Route]:
        raises = (DurationError, EventConflictError, EventError, BacklogError, StoreFullError)
        post = partial(
            Route,
            "POST",
            scope="ingest",
            status=202,
            applies_limits=True,
            raises=raises,
            ends_with_client="wait",
        )
        return [
            post("/ingest/{event_type}", function=self.ingest_event),
            post(
                "/ingest",
                function=self.ingest_events,
                accepts=JSON_TYPES + NDJSON_TYPES,
                documents=list[BatchItem],
            ),
        ]

    async def ingest_event(
        self,
        event_type: EventType,
        body: EventBody,
        traceparent: str | None,
        wait: Wait | None = None,
    ) -> AcceptedEvent:
        """Publish an event; the response is sent when the event is durable.

        With `wait` it is sent when everything that the event triggers is visible, or after that
        time, and `visible` tells which.
        """
        event = self._event(event_type, body, traceparent)
        await self._admit(1)
        (accepted,) = await self._publish([event], body.event_id is not None, wait)
        return accepted

    async def ingest_events(
        self, body: Upload, traceparent: str | None, wait: Wait | None = None
    ) -> AcceptedEvents:
        """Publish a JSON array or JSON lines; one invalid item refuses the whole batch.

        With `wait` the response is sent when everything that the events trigger is visible, or
        after that time, and `visible` tells which.
        """
        items = list(_items(body))
        events = []
        for index, item in enumerate(items):
            try:
                events.append(self._event(item.event_type, item, traceparent))
            except EventError as error:
                raise error.at(index) from error
        await self._admit(len(events))
        dedup = any(item.event_id is not None for item in items)
        try:
            return AcceptedEvents(await self._publish(events, dedup, wait))
        except EventError as error:
            # The store gives no index for a batch of one.
            raise error.at(error.index or 0) from error

    async def _admit(self, events: int) -> None:
        """Raise BacklogError or StoreFullError if the store has no room for so many events."""
        if self._memory.limit:
            await self._memory.admit()
        await self._backlog.admit(events)

    def _event(self, event_type: str, body: EventBody, traceparent: str | None) -> ServiceEvent:
        optional = timing(body.timestamp, self._store.clock)
        if body.event_id is not None:
            optional["event_id"] = body.event_id
        if body.traceparent is not None:
            optional["traceparent"] = body.traceparent
        elif traceparent is not None:
            optional["traceparent"] = traceparent
        return ServiceEvent(event_type, body.entity_id, body.payload, **optional)

    async def _publish(
        self,
        events: Sequence[ServiceEvent],
        dedup: bool,  # noqa: FBT001 - private
        wait: str | None,
    ) -> list[AcceptedEvent]:
        if not events:
            return []
        published = await self._store.bus.publish_many(events, dedup=dedup, wait=wait)
        hint = runtime_of(self._store).registry.event_hint
        hints = {event_type: hint(event_type) for event_type in {e.event_type for e in events}}
        return [
            AcceptedEvent(
                event.event_id,
                event.event_type,
                event.entity_id,
                event.timestamp,
                result.duplicate,
                hints[event.event_type],
                result.visible,
                result.problem,
            )
            for event, result in zip(events, published, strict=True)
        ]


class BacklogLimit:
    """Refuses events that would let more of them wait than ``ingest.max_backlog``."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._limit = store.settings.ingest.max_backlog
        self._waiting = 0
        self._count_at = 0.0

    async def admit(self, events: int) -> None:
        """Raise BacklogError unless so many more events may wait; from now on they count."""
        if not self._limit:
            return
        if time.monotonic() >= self._count_at:
            await self._count()
        if self._waiting + events > self._limit:
            raise BacklogError(self._waiting, events, self._limit)
        self._waiting += events

    async def _count(self) -> None:
        began = time.monotonic()
        self._count_at = began + _BACKLOG_SECONDS  # concurrent requests do not count too
        bus = (await runtime_of(self._store).open()).backends.bus
        before = self._waiting
        counted = await bus.backlog()
        self._waiting += counted - before
        ended = time.monotonic()
        self._count_at = ended + max(_BACKLOG_SECONDS, _PAUSES_PER_COUNT * (ended - began))


class MemoryLimit:
    """Refuses events while the store takes more memory than ``redis.max_memory``."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self.limit = store.settings.redis.max_memory
        self._taken: int | None = 0
        self._measure_at = 0.0

    async def admit(self) -> None:
        """Raise StoreFullError if the store took too much when it was last measured."""
        began = time.monotonic()
        if began >= self._measure_at:
            self._measure_at = began + _MEMORY_SECONDS  # concurrent requests do not measure too
            bus = (await runtime_of(self._store).open()).backends.bus
            taken = await bus.memory()
            if taken is None and self._taken is not None:
                log.warning("memory limit has no effect", remedy=_UNMEASURED)
            self._taken = taken
            ended = time.monotonic()
            self._measure_at = ended + max(_MEMORY_SECONDS, _PAUSES_PER_COUNT * (ended - began))
        if self._taken is not None and self._taken > self.limit:
            raise StoreFullError(self._taken, self.limit)


def _items(body: Upload) -> Iterator[BatchItem]:
    data = body.data.strip()
    if not data:
        raise MalformedError("the body is empty; send a JSON array or JSON lines")
    if body.media_type in NDJSON_TYPES or not data.startswith(b"["):
        parts: Sequence[bytes | msgspec.Raw] = [line for line in data.splitlines() if line.strip()]
    else:
        parts = _array(data)
    for index, part in enumerate(parts):
        try:
            yield decode_json(part, _decoder)
        except FieldError as error:
            _check_lines(data)
            raise FieldError(error.problem, error.field, error.nearest, index) from error
        except MalformedError as error:
            _check_lines(data)
            raise FieldError(str(error), index=index) from error


def _check_lines(data: bytes) -> None:
    """Raise MalformedError if a body is one object around the events, or one on several lines."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).keys()
    except (ValueError, RecursionError):
        return
    if b"\n" in data or fields.isdisjoint(BatchItem.__struct_fields__):
        raise MalformedError(
            "the body is a JSON object; send a JSON array of events, or JSON lines with one event "
            "on each line"
        )


def _array(data: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the body is not a JSON array: {error}") from error
