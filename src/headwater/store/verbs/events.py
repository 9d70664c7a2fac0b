"""The log of events: read accepted events back."""

from __future__ import annotations

from typing import Annotated

from headwater.model.events import EventList, LoggedEvent
from headwater.model.kinds import EntityIdFilter, EventIdFilter, EventTypeFilter, Limit, Moment
from headwater.store.verbs.verb import Sent, Verbs, verb

FilteredEntityId = Annotated[str | int, Sent(EntityIdFilter)]
# Inside the class, `list` is the verb.
LoggedEvents = list[LoggedEvent]


class EventLogVerbs(Verbs):
    """The part of ``store.bus`` that reads the log of events."""

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
