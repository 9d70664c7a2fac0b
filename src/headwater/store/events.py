"""Events in the process of a store: check and publish them, and follow their log."""

from __future__ import annotations

import asyncio
import reprlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from headwater.core.blocking import blocking
from headwater.core.codec import UnstorableError, encode_exact
from headwater.core.durations import Duration
from headwater.core.logging import log
from headwater.declarations.events import EventDef
from headwater.errors import EventConflict, EventConflictError, EventError
from headwater.features.call_scope import check_not_replaying, current_scope
from headwater.features.caller_limits import limited_caller
from headwater.model.events import EventPage, PublishResult
from headwater.model.values import INTERNAL, REDRIVE, ServiceEvent
from headwater.store.event_waits import EventWaits, checked_wait
from headwater.store.verbs.events import EventVerbs, SyncEventVerbs

if TYPE_CHECKING:
    from headwater.store.runtime import Runtime

_MAX_CHECKED_TYPES = 1_000

_decode_payload = msgspec.json.Decoder(dict[str, Any]).decode


class EventPublisher:
    """Publishes events of applications."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._checked_types: set[str] = set()
        self.warns = True
        """Whether event types that are probably misspelled are logged."""
        self.waits = EventWaits(runtime)

    async def publish(
        self, events: Sequence[ServiceEvent], *, dedup: bool, wait: Duration | None = None
    ) -> list[PublishResult]:
        """Check events and what the caller may publish; return when the events are durable.

        With ``wait``, return when they are visible, or at its end. A caller who goes away meanwhile
        ends the wait, and not the publishing.
        """
        check_not_replaying("publish")
        if wait is None:
            return await self._publish(events, dedup=dedup)
        span = checked_wait(wait)
        publishing = asyncio.create_task(self._publish(events, dedup=dedup, positions=True))
        results = await asyncio.shield(publishing)
        engine = await self._runtime.open()
        return await self.waits.until_visible(engine, events, results, span)

    async def _publish(
        self, events: Sequence[ServiceEvent], *, dedup: bool, positions: bool = False
    ) -> list[PublishResult]:
        ingest = self._runtime.settings.ingest
        limited = limited_caller()
        if limited is not None:
            ownership = (await self._runtime.open()).ownership
            await limited.check_events(ownership, self._runtime.registry, events)
        self.check(events)
        transaction = current_scope().transaction
        if transaction is not None and transaction.published is not None:
            transaction.published += events
            return [PublishResult(event.event_id, duplicate=False) for event in events]
        engine = self._runtime.current() or await self._runtime.open()
        window = ingest.dedup_window if dedup else None
        results = await engine.backends.bus.publish(
            events,
            dedup_window=window,
            subjects=self._runtime.registry.subjects,
            positions=positions,
        )
        _raise_conflicts(events, results)
        self._warn_of_unknown(events)
        return results

    def check(self, events: Sequence[ServiceEvent]) -> None:
        """Raise EventError for an event that is invalid, in the future, too large or misfits."""
        ingest, registry = self._runtime.settings.ingest, self._runtime.registry
        latest = self._runtime.clock.now() + ingest.future_tolerance
        _check_events(events, latest, ingest.max_event_bytes, registry.events)

    def _warn_of_unknown(self, events: Sequence[ServiceEvent]) -> None:
        """Log each event type once that is probably a misspelled trigger."""
        if not self.warns:
            return
        registry = self._runtime.registry
        triggers, checked = registry.event_types, self._checked_types
        for event in events:
            event_type = event.event_type
            if event_type in triggers or event_type in checked:
                continue
            if len(checked) < _MAX_CHECKED_TYPES:
                checked.add(event_type)
                hint = registry.event_hint(event_type)
                if hint:
                    log.advise("event type triggers no feature", hint=hint)


def _check_events(
    events: Sequence[ServiceEvent], latest: datetime, largest: int, declared: Mapping[str, EventDef]
) -> None:
    """Raise EventError for an event that is invalid, in the future, too large or does not fit."""
    if isinstance(events, ServiceEvent):
        raise EventError("publish_many takes a list; pass [event], or use store.bus.publish(event)")
    for index, event in enumerate(events):
        place = index if len(events) > 1 else None
        raw = _check_event(event, latest, largest, place)
        if event.event_type in declared:
            declared[event.event_type].check(raw, place)


def _check_event(event: ServiceEvent, latest: datetime, largest: int, index: int | None) -> bytes:
    """Return the JSON text of a valid event's payload."""
    if not isinstance(event, ServiceEvent):
        raise EventError(f"{reprlib.repr(event)} is not a ServiceEvent", index)
    if event.event_type.startswith(INTERNAL):
        raise EventError(f"event types that begin with {INTERNAL!r} are reserved", index)
    if event.event_id.startswith(REDRIVE):
        raise EventError(
            f"event_id {event.event_id!r} is reserved: ids that begin with {REDRIVE!r} belong to "
            "redriven dead letters; choose another id",
            index,
        )
    if event.timestamp > latest:
        raise EventError(
            f"timestamp {event.timestamp.isoformat()} is in the future; check the sender's clock",
            index,
        )
    try:
        raw = encode_exact(event.payload, _decode_payload)
    except UnstorableError as error:
        raise EventError(f"payload cannot be stored: {error}", index) from error
    if len(raw) > largest:
        raise EventError(
            f"payload has {len(raw)} bytes, more than the maximum of {largest}; store large "
            "data elsewhere and send a reference",
            index,
        )
    return raw


def _raise_conflicts(events: Sequence[ServiceEvent], results: Sequence[PublishResult]) -> None:
    if not any([result.conflict or result.erased for result in results]):
        return
    conflicts = [
        EventConflict(index, event.entity_id, event.event_id, result.conflict, result.erased)
        for index, (event, result) in enumerate(zip(events, results, strict=True))
        if result.conflict or result.erased
    ]
    raise EventConflictError(conflicts, len(events))


class EventBus(EventVerbs):
    """``store.bus``, with the verb that only the process of a store has."""

    async def follow(
        self,
        position: str | None = None,
        *,
        event_type: str | None = None,
        entity_id: str | int | None = None,
        limit: int = 200,
    ) -> EventPage:
        """Return the next accepted events after a position of the log, in the order of the log.

        Without a position, only the position of the end is returned. A reader that is more than a
        minute behind skips events, and the page has their number.

        >>> end = (await store.bus.follow()).position
        >>> (await store.bus.follow(end)).events
        []
        """
        entity = None if entity_id is None else str(entity_id)
        return await (await self._engine()).events.follow(position, event_type, entity, limit)


class SyncEventBus(SyncEventVerbs[EventBus]):
    """``store.sync.bus``."""

    follow = blocking(EventBus.follow)
