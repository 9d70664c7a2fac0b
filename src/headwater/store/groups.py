"""The verbs of a store by subject: events and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from hashlib import sha256

from msgspec.structs import replace

from headwater.core.logging import log
from headwater.core.values import EVERYTHING, ServiceEvent
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.errors import EventConflict, EventConflictError
from headwater.features.caller_limits import limited_caller
from headwater.features.frame import check_not_replaying, track_source, track_sources
from headwater.ports import (
    DeadLetter,
    DeadLetterQuery,
    EventPage,
    LoggedEvent,
    PublishResult,
)
from headwater.store.event_log import (
    FOLLOWED,
    EventQuery,
    check_limit,
    find_events,
    followed,
    sources_of,
)
from headwater.store.letter_groups import MOST_GROUPED, LetterGroups, group_letters
from headwater.store.runtime import Runtime
from headwater.store.sync import Blocking, blocking
from headwater.store.validation import check_events

_MAX_CHECKED_TYPES = 1_000
_MOST_NAMED = 100


class EventBus:
    """``store.bus``: publish events that were built beforehand, and read the log of events."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
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

    async def list(
        self,
        *,
        event_id: str | None = None,
        event_type: str | None = None,
        entity_id: str | int | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        limit: int = 100,
    ) -> list[LoggedEvent]:
        """Return accepted events, the newest first, whether or not they were handled.

        >>> (logged,) = await store.bus.list(entity_id="ada", limit=1)
        >>> logged.event.payload
        {'amount': 25.0, 'item': 'book'}
        """
        query = EventQuery(
            event_id=event_id,
            event_type=event_type,
            entity_id=None if entity_id is None else str(entity_id),
            since=since,
            before=before,
            limit=limit,
        )
        track_source("other", "the log of events")
        found = await find_events((await self._runtime.open()).backends.offline, query)
        self._track([each.event for each in found])
        return found

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
        check_limit(limit)
        track_source("other", "the log of events")
        only = followed(event_type, None if entity_id is None else str(entity_id))
        offline = (await self._runtime.open()).backends.offline
        page = await offline.events_after(position, only, within=FOLLOWED, limit=limit)
        self._track([each.logged.event for each in page.events])
        return page

    def _track(self, events: Sequence[ServiceEvent]) -> None:
        track_sources(sources_of(self._runtime.registry, events))


def _raise_conflicts(events: Sequence[ServiceEvent], results: Sequence[PublishResult]) -> None:
    if not any([result.conflict or result.erased for result in results]):
        return
    conflicts = [
        EventConflict(index, event.entity_id, event.event_id, result.conflict, result.erased)
        for index, (event, result) in enumerate(zip(events, results, strict=True))
        if result.conflict or result.erased
    ]
    raise EventConflictError(conflicts, len(events))


class DeadLetterVerbs:
    """``store.dead_letters``: events that could not be handled."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._grouped: tuple[object, LetterGroups] | None = None

    async def list(
        self,
        *,
        ids: Collection[str] | None = None,
        feature: FeatureRef | None = None,
        event_type: str | None = None,
        entity_id: str | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        error: str | None = None,
        after: str | None = None,
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[DeadLetter]:
        """Return dead letters, oldest first, each with its error.

        ``error`` is the error of a group, and ``after`` the last letter of the page before.

        >>> for letter in await store.dead_letters.list():
        ...     print(letter.feature, letter.error)
        last_item KeyError: 'item'
        """
        track_source("other", "dead letters")
        engine = await self._runtime.open()
        catalog = engine.catalog
        query = DeadLetterQuery(
            ids=ids,
            feature=None if feature is None else catalog.series_of(feature_name(feature)),
            event_type=event_type,
            entity_id=entity_id,
            since=since,
            before=before,
            error=error,
            after=after,
            newest_first=newest_first,
            limit=limit,
        )
        letters = await engine.backends.dead_letters.letters(query)
        track_sources(sources_of(engine.registry, [each.event for each in letters]))
        return [replace(each, feature=catalog.name_of(each.feature)) for each in letters]

    async def groups(self) -> LetterGroups:
        """Return the newest dead letters by feature and kind of error, the largest group first.

        Errors that differ only in ids, numbers and texts are of one kind.

        >>> [(group.feature, group.count) for group in (await store.dead_letters.groups()).groups]
        [('last_item', 1)]
        """
        track_source("other", "dead letters")
        track_source(*EVERYTHING)  # errors may name anything, and are not listed by entity
        engine = await self._runtime.open()
        letters = engine.backends.dead_letters
        total, newest = await letters.count(), await letters.summaries(1)
        # Ids grow, so letters with the same number and the same newest one are the same letters.
        state = (total, [each.id for each in newest], engine.catalog.state)
        if self._grouped is None or self._grouped[0] != state:
            found = await letters.summaries(MOST_GROUPED)
            names = engine.catalog.name_of
            self._grouped = (state, await asyncio.to_thread(group_letters, found, total, names))
        return self._grouped[1]

    async def redrive(self, *ids: str) -> None:
        """Run dead letters again, each for the failed feature only; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.redrive(letter.id)
        """
        check_not_replaying("redrive")
        engine = await self._runtime.open()
        named = await self._named(ids)
        async with audited(engine, "dead_letters.redrive", ids=ids, letters=named):
            await engine.backends.dead_letters.redrive(ids)

    async def discard(self, *ids: str) -> None:
        """Delete dead letters permanently; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.discard(letter.id)
        """
        check_not_replaying("discard")
        engine = await self._runtime.open()
        named = await self._named(ids)
        async with audited(engine, "dead_letters.discard", ids=ids, letters=named):
            await engine.backends.dead_letters.discard(ids)

    async def _named(self, ids: Sequence[str]) -> Sequence[dict[str, str]]:
        """Return for the audit log what the first letters are about.

        The log cannot be redacted, so it has a hash of the entity id, as for a forgotten entity.
        """
        letters = await self.list(ids=ids[:_MOST_NAMED], limit=_MOST_NAMED)
        return [
            {
                "id": letter.id,
                "feature": letter.feature,
                "event_type": letter.event.event_type,
                "event_id": letter.event.event_id,
                "entity_id_sha256": sha256(letter.event.entity_id.encode()).hexdigest(),
            }
            for letter in letters
        ]


class SyncEventBus(Blocking[EventBus]):
    """``store.sync.bus``."""

    publish = blocking(EventBus.publish)
    publish_many = blocking(EventBus.publish_many)
    list = blocking(EventBus.list)
    follow = blocking(EventBus.follow)


class SyncDeadLetterVerbs(Blocking[DeadLetterVerbs]):
    """``store.sync.dead_letters``."""

    list = blocking(DeadLetterVerbs.list)
    groups = blocking(DeadLetterVerbs.groups)
    redrive = blocking(DeadLetterVerbs.redrive)
    discard = blocking(DeadLetterVerbs.discard)
