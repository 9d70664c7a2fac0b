"""Finding recorded contexts: by reference, by time and name, by provenance, as far as visible."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple, Protocol, get_args

import msgspec
from msgspec.structs import replace

from headwater.contexts.recorded.outcome_search import SoughtOutcome, sought_outcomes
from headwater.contexts.recorded.outcomes import LABEL
from headwater.contexts.recorded.verification import load_record
from headwater.contexts.recorder import ProvenanceIndex, index_of, inherited
from headwater.core.clock import MICROSECOND
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import (
    AmbiguousRefError,
    BackendError,
    CallerLimitError,
    DamagedRecordError,
    IndexKeyChangedError,
    InvalidInputError,
    UnknownContextError,
)
from headwater.errors.hints import nearest
from headwater.features.call_scope import track_source, track_sources
from headwater.features.caller_limits import LimitedCaller, limited_caller, named_entities
from headwater.features.ownership import Ownership
from headwater.features.services import Services
from headwater.model.callers import CallerLimits
from headwater.model.contexts import LARGEST_PAGE, ContextPage, RecordSummary
from headwater.model.lineage import FreshnessStatus
from headwater.model.values import EVERYTHING, Part
from headwater.ports import (
    HASH_PREFIX,
    Catalog,
    OutcomeFilter,
    RecordLog,
    RecordQuery,
    StoredRecord,
)
from headwater.records.core import Commitment, Core, disclosed
from headwater.records.ids import _ID_LENGTH, HEX, spelled
from headwater.settings.schema import Settings

SHORTEST_PREFIX = 8
SHORTEST_SEARCHED = 6
_SHOWN = 5
_MOST_EXAMINED = 2 * LARGEST_PAGE
_RECORDS = ("other", "recorded contexts")


class ContextQuery(msgspec.Struct, frozen=True):
    """The contexts to find: they must match all fields that are not None.

    The first fields are the provenance; ``start`` is inclusive, ``end`` exclusive, and ``prefix``
    is the beginning of an id or of a record hash. The last ones are what its outcomes must match,
    each by any of them.
    """

    feature: FeatureRef | None = None
    entity: str | None = None
    entity_id: str | int | None = None
    chunk: str | None = None
    document: str | None = None
    index: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    name: str | None = None
    freshness_status: str | None = None
    caller: str | None = None
    prefix: str | None = None
    score: str | None = None
    label: str | None = None
    answer_model: str | None = None
    error: str | None = None

    def check(self) -> None:
        """Raise InvalidInputError if a field is invalid, or given without another one."""
        for name, moment in (("start", self.start), ("end", self.end)):
            if moment is not None and moment.tzinfo is None:
                raise InvalidInputError(f"{name} needs a time zone, for example datetime.now(UTC)")
        status, statuses = self.freshness_status, get_args(FreshnessStatus)
        if status is not None and status not in statuses:
            raise InvalidInputError(f"no freshness_status {status!r}; {nearest(status, statuses)}")
        if self.entity is not None and self.entity_id is None:
            raise InvalidInputError(
                f"entity {self.entity!r} is given without entity_id; give entity_id as well"
            )

    def outcomes(self) -> list[SoughtOutcome]:
        """Return what the outcomes of a context must match."""
        return list(sought_outcomes(self.score, self.label, self.answer_model, self.error))

    def parts(self) -> Iterator[tuple[str, ...]]:
        """Yield the parts that the provenance of a context must contain."""
        entity_id = None if self.entity_id is None else str(self.entity_id)
        if self.feature is not None:
            ids = () if entity_id is None else (entity_id,)
            yield ("feature", feature_name(self.feature), *ids)
        if self.entity is not None and entity_id is not None:
            yield ("entity", self.entity, entity_id)
        elif self.feature is None and entity_id is not None:
            yield ("id", entity_id)
        if self.chunk is not None:
            yield ("chunk", self.chunk)
        if self.document is not None:
            at = ("document",) if self.index is None else ("indexed", self.index)
            yield (*at, self.document)
        elif self.index is not None:
            yield ("index", self.index)

    def sources(self) -> Iterator[Part]:
        """Yield what a function learns about that gets the contexts of the query."""
        for part in self.parts():
            match part:
                case ("entity", _, _):
                    yield part
                case ("id", entity_id) | ("feature", _, entity_id):
                    yield ("event", entity_id)

    def admits(self, summary: RecordSummary) -> bool:
        """Return whether a context matches all fields besides the provenance."""
        return (
            (self.start is None or summary.created_at >= self.start)
            and (self.end is None or summary.created_at < self.end)
            and self.name in (None, summary.name)
            and self.freshness_status in (None, summary.freshness_status)
            and self.caller in (None, summary.caller)
            and (self.prefix is None or has_prefix(summary, self.prefix))
        )


class Listing(NamedTuple):
    """How many contexts are read at once, after which one, and in which order."""

    size: int
    cursor: str | None = None
    reverse: bool = False


class ContextSearch:
    """Finds recorded contexts in the log."""

    def __init__(
        self, records: RecordLog, catalog: Catalog, settings: Settings, visibility: Visibility
    ) -> None:
        self._records = records
        self._visibility = visibility
        self._catalog = catalog
        self._settings = settings

    async def stored(self, ref: str) -> StoredRecord:
        """Return the stored record of a reference."""
        limited = limited_caller()
        if limited is not None:
            return await self._visible(ref, limited)
        track_source(*_RECORDS)
        spelling, ref = ref, spelled(ref)
        stored = await self._records.get(ref)
        if stored is None and SHORTEST_PREFIX <= len(ref) < _ID_LENGTH and HEX.issuperset(ref):
            summaries = await self._records.beginning(ref, limit=_SHOWN)
            ids = sorted(summary.context_id for summary in summaries)
            if len(ids) > 1:
                raise AmbiguousRefError(ref, ids)
            stored = await self._records.get(ids[0]) if ids else None
        if stored is None:
            raise UnknownContextError(spelling, await self._pruned_before())
        track_sources(inherited(stored))
        return stored

    async def beginning(self, text: str, limit: int) -> list[RecordSummary]:
        """Return contexts whose id or record hash begins with a text, as far as they are visible.

        A text that is shorter than any useful prefix finds none.
        """
        track_source(*_RECORDS)
        text = spelled(text).removeprefix(HASH_PREFIX)
        if len(text) < SHORTEST_SEARCHED or not HEX.issuperset(text):
            return []
        summaries = [
            *await self._records.beginning(text, limit=limit),
            *await self._records.beginning(HASH_PREFIX + text, limit=limit),
        ]
        limited = limited_caller()
        unique = {summary.context_id: summary for summary in summaries}
        return [
            summary
            for summary in unique.values()
            if limited is None or await self._visibility.is_listed(limited, summary)
        ][:limit]

    async def _visible(self, ref: str, limited: LimitedCaller) -> StoredRecord:
        """Return the record of a whole id or hash, if a limited caller may read it.

        The beginning of an id could be that of a record which the caller may not know of.
        """
        stored = await self._records.get(spelled(ref))
        if stored is None or not await self._visibility.is_visible(limited, stored):
            raise UnknownContextError(ref, await self._pruned_before())
        return stored

    async def _pruned_before(self) -> datetime | None:
        """Return the moment before which records were pruned, as far as that can be found out."""
        with suppress(BackendError):
            return (await self._catalog.load()).pruned.records
        return None

    async def contexts(
        self,
        query: ContextQuery,
        limit: int,
        cursor: str | None = None,
        *,
        oldest_first: bool = False,
    ) -> ContextPage:
        """List contexts, the newest first, or the oldest first.

        One context more than `limit` means that another page follows. The cursor is a listed
        context, because another would reveal to limited callers that hidden ones exist, unless the
        search takes too long.
        """
        if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
            raise InvalidInputError(f"limit is {limit!r}; give a number from 1 to {LARGEST_PAGE}")
        contexts: list[RecordSummary] = []
        examined = 0
        order = Listing(limit + 1, cursor, oldest_first)
        async for summary, is_listed in self.examined(query, order):
            examined += 1
            if is_listed:
                if len(contexts) == limit:
                    return ContextPage(contexts=contexts, next_cursor=contexts[-1].context_id)
                contexts.append(summary)
            elif examined >= _MOST_EXAMINED:
                return ContextPage(contexts=contexts, next_cursor=summary.context_id)
        return ContextPage(contexts=contexts, next_cursor=None)

    async def find(
        self,
        query: ContextQuery,
        limit: int,
        cursor: str | None = None,
        *,
        oldest_first: bool = False,
    ) -> ContextPage:
        """List contexts with this provenance."""
        query.check()
        if not any(query.parts()) and not query.outcomes():
            raise InvalidInputError(
                "say what to find contexts by: feature, entity_id, chunk, document, index, score, "
                "label, answer_model or error"
            )
        return await self.contexts(query, limit, cursor, oldest_first=oldest_first)

    async def examined(
        self, query: ContextQuery, order: Listing
    ) -> AsyncIterator[tuple[RecordSummary, bool]]:
        """Yield contexts in order, and whether each matches and the caller may read it.

        More pages are read when the first one is used up.
        """
        query.check()
        track_source(*_RECORDS)
        track_sources(query.sources())
        limited = limited_caller()
        async for summary, is_found in await self._found(query, order):
            is_listed = (
                is_found
                and query.admits(summary)
                and (limited is None or await self._visibility.is_listed(limited, summary))
            )
            yield summary, is_listed

    async def _found(
        self, query: ContextQuery, order: Listing
    ) -> AsyncIterator[tuple[RecordSummary, bool]]:
        """Return the contexts that were examined, and whether an index finds each.

        Some that it finds may not match the whole query.
        """
        listed = RecordQuery(
            start=query.start,
            end=query.end,
            name=query.name,
            freshness_status=query.freshness_status,
            caller=query.caller,
            before=order.cursor,
            oldest_first=order.reverse,
            limit=order.size,
        )
        lists = [
            *(
                [
                    KeyedList(partial(self._records.find, key), listed)
                    for keys in group
                    for key in keys
                ]
                for group in await self.keys(query)
            ),
            *(
                [KeyedList(partial(self._records.having, each), listed) for each in alternatives]
                for alternatives in [await self._filters(sought) for sought in query.outcomes()]
            ),
        ]
        if lists:
            return in_all(lists, oldest_first=order.reverse)
        if query.prefix is not None:
            return self._beginning(spelled_prefix(query.prefix), order)
        return self._listed(listed)

    async def _listed(self, query: RecordQuery) -> AsyncIterator[tuple[RecordSummary, bool]]:
        """Yield the contexts with given columns."""
        while page := await self._records.records(query):
            for summary in page:
                yield summary, True
            if len(page) < query.limit:
                return
            query = replace(query, before=page[-1].context_id)

    async def _beginning(
        self, prefix: str, order: Listing
    ) -> AsyncIterator[tuple[RecordSummary, bool]]:
        """Yield the contexts whose id begins with a prefix or, if there are none, the hash."""
        if order.reverse:
            raise InvalidInputError(
                "contexts with a prefix are listed newest first; leave out the order"
            )
        before, prefixes = order.cursor, [prefix]
        if HEX.issuperset(prefix) and len(prefix) >= SHORTEST_PREFIX:
            prefixes.append(f"{HASH_PREFIX}{prefix}")
        for beginning in prefixes:
            while page := await self._records.beginning(beginning, before=before, limit=order.size):
                for summary in page:
                    yield summary, True
                before, prefixes[1:] = page[-1].context_id, []

    async def keys(self, query: ContextQuery) -> list[list[list[bytes]]]:
        """Return for each part of the provenance its alternatives, each with a key per index."""
        parts = list(query.parts())
        if not parts:
            return []
        indexes = await self._indexes()
        groups: list[list[Part]] = [
            # An event may be about the entity, and a query about everything.
            [part, *([("event", part[2])] if part[0] == "entity" else []), EVERYTHING]
            for part in parts
        ]
        return [[[index.key(*part) for index in indexes] for part in group] for group in groups]

    async def _filters(self, sought: SoughtOutcome) -> list[OutcomeFilter]:
        """Return the filters of which an outcome must match one: a label has a key per index."""
        if sought.label is None:
            return [sought.filter]
        return [
            replace(sought.filter, label_key=index.key(LABEL, sought.label))
            for index in await self._indexes()
        ]

    async def _indexes(self) -> list[ProvenanceIndex]:
        """Return the index of the settings, if any, and that of the log.

        Records from before `record.index_key` was set have keys of the log's index.
        """
        await self.check_index_key()
        of_log = ProvenanceIndex(await self._records.index_key())
        configured = index_of(self._settings)
        return [of_log] if configured is None else [configured, of_log]

    async def check_index_key(self) -> None:
        """Raise IndexKeyChangedError if records have keys that cannot be computed here."""
        configured = index_of(self._settings)
        marks = set[bytes]() if configured is None else configured.marks
        for mark in await self._records.marks() - marks:
            if marked := await self._records.find(mark, limit=1):
                raise IndexKeyChangedError(marked[0].created_at)


def spelled_prefix(prefix: str) -> str:
    """Return the beginning of an id or hash as records write it."""
    return prefix.strip().lower()


def has_prefix(summary: RecordSummary, prefix: str) -> bool:
    """Return whether the id or hash of a context begins with a prefix."""
    start = spelled_prefix(prefix)
    return summary.context_id.startswith(start) or summary.record_hash.startswith(
        (start, f"{HASH_PREFIX}{start}")
    )


class ReadPage(Protocol):
    """Reads a page of the contexts with a key, or with an outcome."""

    def __call__(
        self,
        *,
        start: datetime | None,
        end: datetime | None,
        before: str | None,
        oldest_first: bool,
        limit: int,
    ) -> Awaitable[list[RecordSummary]]: ...


class KeyedList:
    """The contexts with one key or outcome, within the times and in the order of a query."""

    def __init__(self, read: ReadPage, query: RecordQuery) -> None:
        self._read_page = read
        self._query = query
        self._page: deque[RecordSummary] = deque()
        self._last = query.before

    async def head(self, target: RecordSummary | None) -> RecordSummary | None:
        """Return the next context that does not come before a target, or None at the end."""
        while True:
            while self._page and target is not None and self._is_before(self._page[0], target):
                self._page.popleft()
            if self._page:
                return self._page[0]
            if not await self._read(target):
                return None

    def drop(self, context_id: str) -> None:
        """Leave a context out if it is the next one."""
        if self._page and self._page[0].context_id == context_id:
            self._page.popleft()

    def _is_before(self, one: RecordSummary, other: RecordSummary) -> bool:
        if self._query.oldest_first:
            return _order(one) < _order(other)
        return _order(one) > _order(other)

    async def _read(self, target: RecordSummary | None) -> bool:
        """Read the next page, from the time of the target on; return False at the end."""
        query = self._query
        start, end = query.start, query.end
        if target is not None and query.oldest_first:
            start = target.created_at
        elif target is not None:
            end = target.created_at + MICROSECOND
        page = await self._read_page(
            start=start,
            end=end,
            before=self._last,
            oldest_first=query.oldest_first,
            limit=query.limit,
        )
        self._page.extend(page)
        self._last = page[-1].context_id if page else self._last
        return bool(page)


async def in_all(
    groups: Sequence[Sequence[KeyedList]], *, oldest_first: bool
) -> AsyncIterator[tuple[RecordSummary, bool]]:
    """Yield contexts in order, and whether each is in a list of every group.

    A group whose next context is far away makes the others skip what cannot match, so that a rare
    input is found as quickly with a frequent one as without.
    """
    nearest, furthest = (min, max) if oldest_first else (max, min)
    target: RecordSummary | None = None
    while True:
        heads: list[RecordSummary] = []
        for lists in groups:
            candidates = [
                head for keyed_list in lists if (head := await keyed_list.head(target)) is not None
            ]
            if not candidates:
                return
            heads.append(nearest(candidates, key=_order))
        first, target = nearest(heads, key=_order), furthest(heads, key=_order)
        yield first, first.context_id == target.context_id
        for keyed_list in (keyed_list for lists in groups for keyed_list in lists):
            keyed_list.drop(first.context_id)


def _order(summary: RecordSummary) -> tuple[datetime, str]:
    return summary.created_at, summary.context_id


_WITHHELD = ""
"""In place of an id that a record withholds: no tenant's ids begin like this."""


class Visibility:
    """Decides by the cores of records, and by those of the contexts inside them.

    A record is visible if its context is allowed and everything that it names is: entities,
    indexes, inner contexts and the sources behind them. Not visible are records of other callers in
    which a function was the retriever, because what it read elsewhere is not recorded, and to
    callers of a tenant or of some entities those that name no entity. An id that is withheld counts
    as that of another tenant.
    """

    def __init__(self, records: RecordLog, services: Services) -> None:
        self._records = records
        self._registry = services.registry
        self._ownership = Ownership(services)

    async def is_listed(self, caller: LimitedCaller, summary: RecordSummary) -> bool:
        """Return whether a caller may read a record of a list."""
        if not _allows_context(caller, summary.name):
            return False
        stored = await self._records.get(summary.context_id)
        return stored is not None and await self.is_visible(caller, stored)

    async def is_visible(self, caller: LimitedCaller, stored: StoredRecord) -> bool:
        """Return whether a caller may read a record."""
        if not _allows_context(caller, stored.name):
            return False
        if caller.limits == CallerLimits(contexts=caller.limits.contexts):
            return True
        try:
            async for core in self._cores(stored):
                await self._check(caller, core)
        except (CallerLimitError, DamagedRecordError, UnknownContextError):
            return False
        return True

    async def _cores(self, stored: StoredRecord) -> AsyncIterator[Core]:
        """Yield the core of a record and those of all contexts inside it, at any depth."""
        waiting, seen = [stored], {stored.context_id}
        while waiting:
            _, core = load_record(waiting.pop())
            yield core
            for inner in core.contexts:
                if inner.context_id not in seen:
                    seen.add(inner.context_id)
                    record = await self._records.get(inner.context_id)
                    if record is None:
                        raise UnknownContextError(inner.context_id, None)
                    waiting.append(record)

    async def _check(self, caller: LimitedCaller, core: Core) -> None:
        """Raise CallerLimitError if a core names something that the limits do not allow."""
        inputs = {
            name: _WITHHELD if type(value) is Commitment else value
            for name, value in core.inputs.items()
        }
        entities = [
            *named_entities(self._registry.entities.values(), inputs),
            *(
                (value.entity, disclosed(value.entity_id) or _WITHHELD)
                for read in core.features
                for value in (read, *read.inputs)
            ),
        ]
        if not (entities or core.contexts) and caller.is_limited_to_entities:
            raise caller.refuse("a record without entities")
        await caller.check_entities(self._ownership, entities)
        for search in core.retrievals:
            if search.index is not None:
                caller.check_index(search.index.name)
            elif core.caller != caller.name:
                # The caller's own assemblies were checked by everything that they had read.
                raise caller.refuse("a record of a retriever function")
        for source in core.sources:
            if source.kind == "entity":
                entity_id = disclosed(source.entity_id) or _WITHHELD
                await caller.check_entity(self._ownership, source.name, entity_id)
            elif source.kind == "index":
                caller.check_index(source.name)
            else:
                raise caller.refuse(f"a record of {source.name}")


def _allows_context(caller: LimitedCaller, name: str) -> bool:
    return caller.limits.contexts is None or name in caller.limits.contexts
