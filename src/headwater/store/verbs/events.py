"""Events: publish them, and read accepted events back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar, overload

from headwater.core.blocking import Blocking, blocking
from headwater.core.durations import Duration
from headwater.model.events import (
    EventArguments,
    EventList,
    EventLoadReport,
    LoggedEvent,
    OnEventsLoaded,
    PayloadLike,
    PublishedEvent,
    PublishResult,
    new_event,
)
from headwater.model.kinds import EntityIdFilter, EventIdFilter, EventTypeFilter, Limit, Moment
from headwater.model.values import ServiceEvent, without_assigned_time
from headwater.store.verbs.verb import Sent, Verbs, verb

FilteredEntityId = Annotated[str | int, Sent(EntityIdFilter)]
# Inside the class, `list` is the verb.
LoggedEvents = list[LoggedEvent]
Published = list[PublishResult]


class EventVerbs(Verbs):
    """``store.bus``: publish events that were built beforehand, and read the log of events."""

    async def publish(self, event: ServiceEvent, *, wait: Duration | None = None) -> PublishResult:
        """Publish an event; when this returns, the event is durable.

        With ``wait`` it is also visible, or the result has the problem, as for ``store.publish``.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> await store.bus.publish(event)
        PublishResult(event_id='...', duplicate=False)
        """
        (published,) = await self.publish_many([event], wait=wait)
        return published

    async def publish_many(
        self, events: Sequence[ServiceEvent], *, dedup: bool = True, wait: Duration | None = None
    ) -> Published:
        """Publish events together; a repeated event id within the window counts once.

        Either all are stored or none, except events that repeat an id of their entity with another
        type, payload or given timestamp, and events of an erased entity, unless they are later and
        it may return: EventConflictError names them, the others are stored.

        A client sends many events in several requests, each of which is stored as a whole or not at
        all. It ignores ``dedup``, because every request may have to be repeated.

        With ``wait``, such as ``"2s"``, return when all are visible or after that time; each result
        says which. A duplicate is visible when its partition has been handled as far as it is now.

        >>> event = ServiceEvent("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> [result.duplicate for result in await store.bus.publish_many([event, event])]
        [False, True]
        """
        return await self._runtime.publisher.publish(events, dedup=dedup, wait=wait)

    async def load(
        self,
        file: str | Path,
        *,
        type: str | None = None,
        event_type: str = "event_type",
        entity_id: str = "entity_id",
        timestamp: str | None = "timestamp",
        event_id: str | None = None,
        time_zone: str | None = None,
        rate: float | None = None,
        rejects: str | Path | None = None,
        progress: OnEventsLoaded | None = None,
    ) -> EventLoadReport:
        """Publish the rows of a JSONL, CSV or Parquet file, each of them once.

        A load that was interrupted, by a crash too, is simply run again: the log says up to which
        row the file is loaded. So does a file that has grown at its end since.

        Args:
            file: its name ends with .jsonl, .ndjson, .csv, .tsv or .parquet; all but the last may
                be compressed (.gz, .bz2, .xz).
            type: the type of all events, in place of a column.
            event_type: the column with the types.
            entity_id: the column with the ids; ``user.id`` is the field ``id`` of ``user``.
            timestamp: the column with the times; None if the events happen now.
            event_id: the column with the ids of events. Default: ``event_id`` if a row has it, and
                else an id that is derived from the file up to the row.
            time_zone: of times without one, which are refused otherwise.
            rate: how many events are published in a second, at most.
            rejects: the file that rows which are no valid events are written to, with their
                problems; without it, the first of them ends the load.
            progress: called after each batch.

        The payload is the field ``payload`` if that is an object, and else all other columns; those
        of CSV and Parquet with dots in their names become objects in it.

        >>> await store.bus.load("purchases.csv", type="purchase", entity_id="user")
        <EventLoadReport rows=2 published=2 loaded_before=0 duplicates=0 rejected=0>
        >>> await store.bus.load("purchases.csv", type="purchase", entity_id="user")
        <EventLoadReport rows=2 published=0 loaded_before=2 duplicates=0 rejected=0>
        """
        from headwater.store import event_loading  # noqa: PLC0415 - DuckDB, for this verb alone

        columns = event_loading.EventColumns(
            type, event_type, entity_id, timestamp, event_id, time_zone
        )
        options = event_loading.LoadOptions(
            rate, None if rejects is None else Path(rejects), progress
        )
        source = event_loading.LoadedFile(Path(file), columns)
        if not source.is_nested:
            source.follow(await self._schemas())
        return await event_loading.EventLoad(self, self._runtime.clock, source, options).run()

    async def _schemas(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the schemas of the payloads of declared types."""
        events = self._runtime.registry.events
        return {name: declared.schema for name, declared in events.items()}

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

    @overload
    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
        wait: None = None,
    ) -> ServiceEvent: ...

    @overload
    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
        wait: Duration,
    ) -> PublishedEvent: ...

    async def publish(
        self,
        event_type: str,
        entity_id: str | int,
        payload: PayloadLike | None = None,
        *,
        timestamp: datetime | None = None,
        event_id: str | None = None,
        wait: Duration | None = None,
    ) -> ServiceEvent:
        """Publish an event about an entity; when this returns, the event is durable.

        The payload is a mapping, or an instance of a class that ``event`` declares.

        With ``wait``, such as ``"2s"`` and at most a minute, return when everything that the event
        triggers is visible, or after that time: a `PublishedEvent`, which says whether it is and
        what the problem is. Events that its handlers publish are not waited for.

        >>> event = await store.publish("purchase", "ada", {"amount": 5.0, "item": "pen"})
        >>> event.entity_id
        'ada'
        """
        given = EventArguments(event_type, entity_id, payload, timestamp, event_id)
        event, result = await self._publish_event(given, wait)
        return event if wait is None else PublishedEvent.of(event, result)

    async def _publish_event(
        self, given: EventArguments, wait: Duration | None
    ) -> tuple[ServiceEvent, PublishResult]:
        event = new_event(self._runtime.clock, *given)
        dedup = given.event_id is not None
        (result,) = await self.bus.publish_many([event], dedup=dedup, wait=wait)
        return without_assigned_time(event), result


E_co = TypeVar("E_co", bound=EventVerbs, covariant=True)


class SyncEventVerbs(Blocking[E_co]):
    """The blocking form of the bus."""

    publish = blocking(EventVerbs.publish)
    publish_many = blocking(EventVerbs.publish_many)
    load = blocking(EventVerbs.load)
    list = blocking(EventVerbs.list)
