"""Finding recorded contexts: by reference, by time and name, and by provenance."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple, get_args

import msgspec

from headwater.contexts.recorded.visibility import Visibility
from headwater.contexts.recorder import ProvenanceIndex, index_of, inherited
from headwater.core.clock import MICROSECOND
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import (
    AmbiguousRefError,
    BackendError,
    IndexKeyChangedError,
    InvalidInputError,
    UnknownContextError,
)
from headwater.errors.hints import nearest
from headwater.features.call_scope import track_source, track_sources
from headwater.features.caller_limits import LimitedCaller, limited_caller
from headwater.model.contexts import LARGEST_PAGE, ContextPage, RecordSummary
from headwater.model.lineage import FreshnessStatus
from headwater.model.values import EVERYTHING, Part
from headwater.ports import HASH_PREFIX, Catalog, RecordLog, RecordQuery, StoredRecord
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
    is the beginning of an id or of a record hash.
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
        yield from _document_parts(self.document, self.index)

    def sources(self) -> Iterator[Part]:
        """Yield what a function learns about that gets the contexts of the query."""
        for part in self.parts():
            match part:
                case ("entity", _, _):
                    yield part
                case ("id", entity_id) | ("feature", _, entity_id):
                    yield ("event", entity_id)

    def admits(self, found: RecordSummary) -> bool:
        """Return whether a context matches all fields besides the provenance."""
        return (
            (self.start is None or found.created_at >= self.start)
            and (self.end is None or found.created_at < self.end)
            and self.name in (None, found.name)
            and self.freshness_status in (None, found.freshness_status)
            and self.caller in (None, found.caller)
            and (self.prefix is None or has_prefix(found, self.prefix))
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
        if not any(query.parts()):
            raise InvalidInputError(
                "say what to find contexts by: feature, entity_id, chunk, document or index"
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
        if groups := await self.keys(query):
            lists = [
                [KeyedList(self._records, key, listed) for keys in group for key in keys]
                for group in groups
            ]
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
            query = msgspec.structs.replace(query, before=page[-1].context_id)

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
        return [
            [[index.key(*alternative) for index in indexes] for alternative in _alternatives(part)]
            for part in parts
        ]

    async def _indexes(self) -> list[ProvenanceIndex]:
        """Return the index of the settings, if any, and that of the log.

        Records from before `record.index_key` was set have keys of the log's index.
        """
        await self.check_index_key()
        of_log, configured = (
            ProvenanceIndex(await self._records.index_key()),
            index_of(self._settings),
        )
        return [of_log] if configured is None else [configured, of_log]

    async def check_index_key(self) -> None:
        """Raise IndexKeyChangedError if records have keys that cannot be computed here."""
        configured = index_of(self._settings)
        marks = set[bytes]() if configured is None else configured.marks
        for mark in await self._records.marks() - marks:
            if marked := await self._records.find(mark, limit=1):
                raise IndexKeyChangedError(marked[0].created_at)


def _alternatives(part: Part) -> Iterator[Part]:
    """Yield the parts by which a context is found that read something."""
    yield part
    if part[0] == "entity":
        yield ("event", part[2])
    yield EVERYTHING


def _document_parts(document: str | None, index: str | None) -> Iterator[tuple[str, ...]]:
    if document is None:
        if index is not None:
            yield ("index", index)
    elif index is None:
        yield ("document", document)
    else:
        yield ("indexed", index, document)


def spelled_prefix(prefix: str) -> str:
    """Return the beginning of an id or hash as records write it."""
    return prefix.strip().lower()


def has_prefix(found: RecordSummary, prefix: str) -> bool:
    """Return whether the id or hash of a context begins with a prefix."""
    start = spelled_prefix(prefix)
    return found.context_id.startswith(start) or found.record_hash.startswith(
        (start, f"{HASH_PREFIX}{start}")
    )


class KeyedList:
    """The contexts with one key, within the times and in the order of a query."""

    def __init__(self, records: RecordLog, key: bytes, query: RecordQuery) -> None:
        self._records = records
        self._key = key
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
        page = await self._records.find(
            self._key,
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
