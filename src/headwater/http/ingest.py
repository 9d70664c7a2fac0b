"""Routes that take events in."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.core.values import ServiceEvent
from headwater.declarations.runtime import runtime_of
from headwater.errors import EventError
from headwater.http.problems import BacklogError, FieldError, MalformedError
from headwater.http.request_parsing import Upload, decode_json
from headwater.http.routes import JSON_TYPES, Route
from headwater.store.feature_store import FeatureStore

NDJSON_TYPES = ("application/x-ndjson", "application/ndjson", "application/jsonl")

# Counting what waits takes longer than taking an event in.
_BACKLOG_SECONDS = 0.5


class EventBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What happened to an entity."""

    entity_id: str
    payload: dict[str, Any] = {}
    timestamp: Annotated[datetime, Meta(tz=True)] | None = None
    event_id: str | None = None


class BatchItem(EventBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of several events."""

    event_type: str


class AcceptedEvent(msgspec.Struct, frozen=True):
    """An event that is durable now, or was already."""

    event_id: str
    event_type: str
    entity_id: str
    timestamp: datetime
    duplicate: bool


class AcceptedEvents(msgspec.Struct, frozen=True):
    """The events of a batch, in the order sent."""

    events: list[AcceptedEvent]


_decoder = msgspec.json.Decoder(BatchItem)


class Ingest:
    """Publishes what is sent, one event or a batch of which all or none are taken."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._backlog = Backlog(store)

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/ingest/{event_type}", self.ingest_event, status=202),
            Route(
                "POST",
                "/ingest",
                self.ingest_events,
                status=202,
                accepts=JSON_TYPES + NDJSON_TYPES,
                documents=list[BatchItem],
            ),
        ]

    async def ingest_event(self, event_type: str, body: EventBody) -> AcceptedEvent:
        """Publishes an event; when this answers, the event is durable."""
        await self._backlog.check()
        event = self._event(event_type, body)
        (accepted,) = await self._publish([event], dedup=body.event_id is not None)
        return accepted

    async def ingest_events(self, body: Upload) -> AcceptedEvents:
        """Publishes a JSON array or lines of JSON, all or none; one invalid item refuses all."""
        await self._backlog.check()
        items = list(_items(body))
        events = [self._item_event(index, item) for index, item in enumerate(items)]
        dedup = any(item.event_id is not None for item in items)
        try:
            return AcceptedEvents(await self._publish(events, dedup=dedup))
        except EventError as error:
            # The store names the place of an event among several only.
            raise EventError(error.problem, error.index or 0) from error

    def _item_event(self, index: int, item: BatchItem) -> ServiceEvent:
        try:
            return self._event(item.event_type, item)
        except EventError as error:
            raise EventError(error.problem, index) from error

    def _event(self, event_type: str, body: EventBody) -> ServiceEvent:
        given: dict[str, Any] = {"timestamp": body.timestamp or self._store.clock.now()}
        if body.event_id is not None:
            given["event_id"] = body.event_id
        return ServiceEvent(event_type, body.entity_id, body.payload, **given)

    async def _publish(self, events: Sequence[ServiceEvent], *, dedup: bool) -> list[AcceptedEvent]:
        if not events:
            return []
        published = await self._store.bus.publish_many(events, dedup=dedup)
        return [
            AcceptedEvent(
                event.event_id, event.event_type, event.entity_id, event.timestamp, answer.duplicate
            )
            for event, answer in zip(events, published, strict=True)
        ]


class Backlog:
    """Refuses events while too many wait."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._limit = store.settings.ingest.max_backlog
        self._waiting = 0
        self._counted_at = float("-inf")

    async def check(self) -> None:
        """Returns if more events can be taken."""
        if not self._limit:
            return
        now = time.monotonic()
        if now - self._counted_at > _BACKLOG_SECONDS:
            # Set first, so that requests that arrive meanwhile do not count as well.
            self._counted_at = now
            engine = await runtime_of(self._store).open()
            self._waiting = await engine.backends.bus.backlog()
        if self._waiting > self._limit:
            raise BacklogError(self._limit)


def _items(body: Upload) -> Iterator[BatchItem]:
    data = body.data.strip()
    if not data:
        raise MalformedError("the body is empty; send a JSON array, or lines of JSON")
    if body.media_type in NDJSON_TYPES or not data.startswith(b"["):
        parts: Sequence[bytes | msgspec.Raw] = [line for line in data.splitlines() if line.strip()]
    else:
        parts = _array(data)
    for index, part in enumerate(parts):
        try:
            yield decode_json(part, _decoder)
        except FieldError as error:
            raise FieldError(error.problem, error.field, error.nearest, index) from error
        except MalformedError as error:
            raise FieldError(str(error), index=index) from error


def _array(data: bytes) -> list[msgspec.Raw]:
    try:
        return msgspec.json.decode(data, type=list[msgspec.Raw])
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the body is not a JSON array: {error}") from error
