"""``store.bus``: publishing events and reading the log of events."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.core.blocking import Blocking, blocking
from headwater.core.logging import log
from headwater.errors import EventConflict, EventConflictError
from headwater.features.call_scope import check_not_replaying
from headwater.features.caller_limits import limited_caller
from headwater.model.events import EventPage, PublishResult
from headwater.model.values import ServiceEvent
from headwater.store.runtime import Runtime
from headwater.store.validation import check_events
from headwater.store.verbs.events import EventLogVerbs

_MAX_CHECKED_TYPES = 1_000


class EventBus(EventLogVerbs):
    """``store.bus``: publish events that were built beforehand, and read the log of events."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._checked_types: set[str] = set()

    async def publish(self, event: ServiceEvent) -> PublishResult:
        """Publish an event; when this returns, the event is durable.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> await store.bus.publish(event)
        PublishResult(event_id='...', duplicate=False)
        """
        (published,) = await self.publish_many([event])
        return published

    async def publish_many(
        self, events: Sequence[ServiceEvent], *, dedup: bool = True
    ) -> list[PublishResult]:
        """Publish events together; a repeated event id within the window counts once.

        Either all are stored or none, except events that repeat an id of their entity with another
        type, payload or given timestamp, and events of an erased entity, unless they are later and
        it may return: EventConflictError names them, the others are stored.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> [result.duplicate for result in await store.bus.publish_many([event, event])]
        [False, True]
        """
        check_not_replaying("publish")
        ingest, clock = self._runtime.settings.ingest, self._runtime.clock
        limited = limited_caller()
        if limited is not None:
            limited.check_events(self._runtime.registry, events)
        check_events(events, clock.now() + ingest.future_tolerance, ingest.max_event_bytes)
        engine = self._runtime.current() or await self._runtime.open()
        window = ingest.dedup_window if dedup else None
        results = await engine.backends.bus.publish(
            events, dedup_window=window, subjects=self._runtime.registry.subjects
        )
        _raise_conflicts(events, results)
        self._warn_of_unknown(events)
        return results

    def _warn_of_unknown(self, events: Sequence[ServiceEvent]) -> None:
        """Log each event type once that is probably a misspelled trigger."""
        registry = self._runtime.registry
        triggers, checked = registry.event_types, self._checked_types
        for event in events:
            event_type = event.event_type
            if event_type in triggers or event_type in checked:
                continue
            if len(self._checked_types) < _MAX_CHECKED_TYPES:
                self._checked_types.add(event_type)
                hint = registry.event_hint(event_type)
                if hint:
                    log.warning("event type triggers no feature", hint=hint)

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


def _raise_conflicts(events: Sequence[ServiceEvent], results: Sequence[PublishResult]) -> None:
    if not any([result.conflict or result.erased for result in results]):
        return
    conflicts = [
        EventConflict(index, event.entity_id, event.event_id, result.conflict, result.erased)
        for index, (event, result) in enumerate(zip(events, results, strict=True))
        if result.conflict or result.erased
    ]
    raise EventConflictError(conflicts, len(events))


class SyncEventBus(Blocking[EventBus]):
    """``store.sync.bus``."""

    publish = blocking(EventBus.publish)
    publish_many = blocking(EventBus.publish_many)
    list = blocking(EventBus.list)
    follow = blocking(EventBus.follow)
