"""The verbs of a store by subject: events, recorded contexts and dead letters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from msgspec.structs import replace

from headwater.core.logging import log
from headwater.core.values import ServiceEvent
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import EventConflict, EventConflictError
from headwater.features.caller_limits import limited_caller
from headwater.features.frame import check_not_replaying, track_source
from headwater.ports import (
    DeadLetter,
    DeadLetterQuery,
    EventFilter,
    EventPage,
    LoggedEvent,
    PublishResult,
)
from headwater.records.lineage import ContextTrace
from headwater.store.audit_log import audited
from headwater.store.event_log import FOLLOWED, EventQuery, check_limit, find_events
from headwater.store.letter_groups import MOST_GROUPED, LetterGroups, group_letters
from headwater.store.runtime import Runtime
from headwater.store.sync import Blocking, blocking
from headwater.store.validation import check_events

if TYPE_CHECKING:
    from headwater.contexts.recorded import ContextPage
    from headwater.contexts.recorded.causes import ContextCauses
    from headwater.contexts.recorded.replay import Mode, Replay
    from headwater.records.diff import ContextDiff
    from headwater.records.record import Record
    from headwater.records.verification_report import VerificationReport


_MAX_CHECKED_TYPES = 1_000


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
        type, payload or given timestamp: EventConflictError names them, the others are stored.

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
        results = await engine.backends.bus.publish(events, dedup_window=window)
        if dedup:
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
        return await find_events((await self._runtime.open()).backends.offline, query)

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
        only = EventFilter(event_type, None if entity_id is None else str(entity_id))
        offline = (await self._runtime.open()).backends.offline
        return await offline.events_after(position, only, within=FOLLOWED, limit=limit)


def _raise_conflicts(events: Sequence[ServiceEvent], results: Sequence[PublishResult]) -> None:
    if not any([result.conflict for result in results]):
        return
    conflicts = [
        EventConflict(index, event.entity_id, event.event_id, result.conflict)
        for index, (event, result) in enumerate(zip(events, results, strict=True))
        if result.conflict
    ]
    raise EventConflictError(conflicts, len(events))


class RecordVerbs:
    """``store.records``: search, verify, explain, replay and redact recorded contexts.

    ``ref`` is a context id, its first 8 or more characters, or a record hash.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def get(self, ref: str) -> Record:
        """Return the record of a context.

        >>> record = await store.records.get(ctx.context_id)
        >>> record.record_hash == ctx.record_hash
        True
        """
        return await (await self._runtime.open()).recorded.record_of(ref)

    async def find(
        self,
        *,
        feature: FeatureRef | None = None,
        entity: str | None = None,
        entity_id: str | int | None = None,
        chunk: str | None = None,
        document: str | None = None,
        index: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> ContextPage:
        """Return the recorded contexts that used all of these, newest first.

        Indirect use counts: the inputs of computed features, of searches and of inner contexts.
        ``entity`` names the kind of entity that ``entity_id`` belongs to, ``index`` the index of
        the ``document``; alone, it finds the contexts that searched the index.

        >>> await store.records.find(entity="User", entity_id="ada")
        <ContextPage contexts=1, the last page>
        """
        from headwater.contexts.recorded import ContextQuery  # noqa: PLC0415 - loaded with the engine

        recorded = (await self._runtime.open()).recorded
        name = None if feature is None else feature_name(feature)
        query = ContextQuery(name, entity, entity_id, chunk, document, index)
        return await recorded.find(query, limit, cursor)

    async def verify(
        self, ref: str, *, expect: str | None = None, signed: bool | None = None
    ) -> VerificationReport:
        """Check a stored record against its hashes and signature.

        ``expect`` is the record hash that was handed out with the answer. A record that none of
        the configured keys signed fails; ``signed=False`` accepts it, and ``signed=True`` refuses
        it without keys, too.

        >>> (await store.records.verify(ctx.context_id, expect=ctx.record_hash)).ok
        True
        """
        return await (await self._runtime.open()).recorded.verify(ref, expect, signed=signed)

    async def explain(self, ref: str) -> ContextTrace:
        """Explain a context: which items were kept and why, ages, latencies, tokens and cost.

        >>> trace = await store.records.explain(ctx.context_id)
        >>> [item.decision for item in trace.items]
        ['kept', 'kept']
        """
        return await (await self._runtime.open()).recorded.explain(ref)

    async def causes(self, ref: str) -> ContextCauses:
        """Return the events behind the values that a context read, as far as history has them.

        >>> found = await store.records.causes(ctx.context_id)
        >>> [cause.event.event_type for cause in found.causes]
        ['purchase']
        """
        return await (await self._runtime.open()).recorded.causes(ref)

    async def replay(self, ref: str, mode: Mode = "show") -> Replay:
        """Replay a recorded context.

        ``show`` returns the stored text; ``reassemble`` fits the stored items again; ``as_of`` runs
        the function with the feature values of that time, ``live`` with those of now. The last two
        are not recorded, and a function that would write is refused.

        >>> await store.records.replay(ctx.context_id, "as_of")
        <Replay 'as_of' of ...: same text>
        """
        limited = limited_caller()
        if limited is not None and mode not in ("show", "reassemble"):
            raise limited.refuse(f"a replay with the mode {mode!r}")
        return await (await self._runtime.open()).recorded.replay(ref, mode)

    async def diff(self, before: str, after: str) -> ContextDiff:
        """Return the differences between two recorded contexts.

        >>> other = await support("bob", "Where is my parcel?")
        >>> await store.records.diff(ctx.context_id, other.context_id)
        <ContextDiff ... → ...: other text, ... tokens>
        """
        return await (await self._runtime.open()).recorded.diff(before, after)

    async def redact(
        self,
        ref: str,
        *pointers: str,
        reason: str,
        by: str | None = None,
        everywhere: bool = False,
    ) -> Record:
        """Erase values of a record permanently, all or none; hash and signature stay valid.

        With ``everywhere``, also erase them in every other place of the record that discloses one
        of them, as a whole or inside a text.

        >>> record = await store.records.redact(
        ...     ctx.context_id, "/inputs/question", reason="requested by the customer"
        ... )
        >>> (await store.get_context_at(ctx.context_id)).inputs["question"] is None
        True
        """
        check_not_replaying("redact")
        engine = await self._runtime.open()
        async with audited(engine, "records.redact", ref, pointers=pointers, everywhere=everywhere):
            return await engine.recorded.redact(ref, pointers, reason, by, everywhere=everywhere)

    async def inner(self, ref: str) -> list[Record]:
        """Return the records of all contexts that were assembled inside this one, at any depth.

        >>> await store.records.inner(ctx.context_id)
        []
        """
        return await (await self._runtime.open()).recorded.inner(ref)

    async def copies(self, ref: str, *pointers: str) -> dict[str, list[str]]:
        """Return where else values of a record occur: pointers by context id.

        The record itself and the records of its inner contexts are searched, before a redaction.

        >>> await store.records.copies(ctx.context_id, "/features/0/value")
        {'...': [...]}
        """
        return await (await self._runtime.open()).recorded.copies(ref, pointers)


class DeadLetterVerbs:
    """``store.dead_letters``: events that could not be handled."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

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
        return [replace(each, feature=catalog.name_of(each.feature)) for each in letters]

    async def groups(self) -> LetterGroups:
        """Return the newest dead letters by feature and kind of error, the largest group first.

        Errors that differ only in ids, numbers and texts are of one kind.

        >>> [(group.feature, group.count) for group in (await store.dead_letters.groups()).groups]
        [('last_item', 1)]
        """
        track_source("other", "dead letters")
        engine = await self._runtime.open()
        letters = await engine.backends.dead_letters.summaries(MOST_GROUPED)
        total = await engine.backends.dead_letters.count()
        return group_letters(letters, total, engine.catalog.name_of)

    async def redrive(self, *ids: str) -> None:
        """Run dead letters again, each for the failed feature only; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.redrive(letter.id)
        """
        check_not_replaying("redrive")
        engine = await self._runtime.open()
        async with audited(engine, "dead_letters.redrive", ids=ids):
            await engine.backends.dead_letters.redrive(ids)

    async def discard(self, *ids: str) -> None:
        """Delete dead letters permanently; all or none.

        >>> (letter,) = await store.dead_letters.list(feature="last_item")
        >>> await store.dead_letters.discard(letter.id)
        """
        check_not_replaying("discard")
        engine = await self._runtime.open()
        async with audited(engine, "dead_letters.discard", ids=ids):
            await engine.backends.dead_letters.discard(ids)


class SyncEventBus(Blocking[EventBus]):
    """``store.sync.bus``."""

    publish = blocking(EventBus.publish)
    publish_many = blocking(EventBus.publish_many)
    list = blocking(EventBus.list)
    follow = blocking(EventBus.follow)


class SyncRecordVerbs(Blocking[RecordVerbs]):
    """``store.sync.records``."""

    get = blocking(RecordVerbs.get)
    find = blocking(RecordVerbs.find)
    verify = blocking(RecordVerbs.verify)
    explain = blocking(RecordVerbs.explain)
    causes = blocking(RecordVerbs.causes)
    replay = blocking(RecordVerbs.replay)
    diff = blocking(RecordVerbs.diff)
    redact = blocking(RecordVerbs.redact)
    copies = blocking(RecordVerbs.copies)
    inner = blocking(RecordVerbs.inner)


class SyncDeadLetterVerbs(Blocking[DeadLetterVerbs]):
    """``store.sync.dead_letters``."""

    list = blocking(DeadLetterVerbs.list)
    groups = blocking(DeadLetterVerbs.groups)
    redrive = blocking(DeadLetterVerbs.redrive)
    discard = blocking(DeadLetterVerbs.discard)
