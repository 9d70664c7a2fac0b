"""Events: publish them, and read accepted events back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, TypeVar

from headwater.core.blocking import Blocking, blocking
from headwater.model.events import EventList, LoggedEvent, PayloadLike, PublishResult, new_event
from headwater.model.kinds import EntityIdFilter, EventIdFilter, EventTypeFilter, Limit, Moment
from headwater.model.values import ServiceEvent, without_assigned_time
from headwater.store.verbs.verb import Sent, Verbs, verb

FilteredEntityId = Annotated[str | int, Sent(EntityIdFilter)]
# Inside the class, `list` is the verb.
LoggedEvents = list[LoggedEvent]
Published = list[PublishResult]


class EventVerbs(Verbs):
    """``store.bus``: publish events that were built beforehand, and read the log of events."""

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
    ) -> Published:
        """Publish events together; a repeated event id within the window counts once.

        Either all are stored or none, except events that repeat an id of their entity with another
        type, payload or given timestamp, and events of an erased entity, unless they are later and
        it may return: EventConflictError names them, the others are stored.

        A client sends many events in several requests, each of which is stored as a whole or not at
        all. It ignores ``dedup``, because every request may have to be repeated.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> [result.duplicate for result in await store.bus.publish_many([event, event])]
        [False, True]
        """
        return await self._runtime.publisher.publish(events, dedup=dedup)

    @verb(
        "GET",
        "/v1/events",
        scope="admin",
        operation="list_events",
        reads="the log of events",
        answer=EventList,
    )
    async def list(
        self,
        *,
        event_id: EventIdFilter | None = None,
        event_type: EventTypeFilter | None = None,
        entity_id: FilteredEntityId | None = None,
        since: Moment | None = None,
        before: Moment | None = None,
        limit: Limit = 100,
    ) -> LoggedEvents:
        """Return accepted events, the newest first, whether or not they were handled.

        >>> (logged,) = await store.bus.list(entity_id="ada", limit=1)
        >>> logged.event.payload
        {'amount': 25.0, 'item': 'book'}
        """
        return await (await self._engine()).events.find(
            event_id=event_id,
            event_type=event_type,
            entity_id=None if entity_id is None else str(entity_id),
            since=since,
            before=before,
            limit=limit,
        )


class PublishVerbs(Verbs):
    """The part of a store that publishes one event."""

    bus: EventVerbs

    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
    ) -> ServiceEvent:
        """Publish an event about an entity; when this returns, the event is durable.

        The payload is a mapping, or an instance of a class that ``event`` declares.

        >>> event = await store.publish("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> event.entity_id
        'ada'
        """
        clock = self._runtime.clock
        event = new_event(clock, event_type, entity_id, payload, timestamp, event_id)
        await self.bus.publish_many([event], dedup=event_id is not None)
        return without_assigned_time(event)


E_co = TypeVar("E_co", bound=EventVerbs, covariant=True)


class SyncEventVerbs(Blocking[E_co]):
    """The blocking form of the bus."""

    publish = blocking(EventVerbs.publish)
    publish_many = blocking(EventVerbs.publish_many)
    list = blocking(EventVerbs.list)
