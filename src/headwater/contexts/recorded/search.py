"""Finding recorded contexts: by reference, by time and name, and by provenance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import get_args

import msgspec

from headwater.contexts.recorded.visibility import Visibility
from headwater.contexts.recorder import ProvenanceIndex, index_of
from headwater.errors import (
    AmbiguousRefError,
    BackendError,
    InvalidInputError,
    UnknownContextError,
)
from headwater.errors.hints import nearest
from headwater.features.caller_limits import LimitedCaller, limited_caller
from headwater.features.frame import track_source
from headwater.ports import (
    HASH_PREFIX,
    Catalog,
    RecordLog,
    RecordQuery,
    RecordSummary,
    StoredRecord,
)
from headwater.records.ids import HEX, spelled
from headwater.records.lineage import FreshnessStatus
from headwater.settings.schema import Settings

SHORTEST_PREFIX = 8
SHORTEST_SEARCHED = 6
LARGEST_PAGE = 1_000
_ID_LENGTH = 36
_SHOWN = 5
_MOST_EXAMINED = 2 * LARGEST_PAGE
_RECORDS = ("other", "recorded contexts")


class ContextPage(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded contexts, the newest first; `next_cursor` is None on the last page."""

    contexts: Sequence[RecordSummary]
    next_cursor: str | None

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<ContextPage contexts={len(self.contexts)}, {more}>"


class ContextQuery(msgspec.Struct, frozen=True):
    """The provenance to search for: contexts must match all fields that are not None."""

    feature: str | None = None
    entity: str | None = None
    entity_id: str | int | None = None
    chunk: str | None = None
    document: str | None = None
    index: str | None = None


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
            ids = await self._records.ids_beginning(ref, _SHOWN)
            if len(ids) > 1:
                raise AmbiguousRefError(ref, ids)
            stored = await self._records.get(ids[0]) if ids else None
        if stored is None:
            raise UnknownContextError(spelling, await self._pruned_before())
        return stored

    async def beginning(self, text: str, limit: int) -> list[RecordSummary]:
        """Return contexts whose id or record hash begins with a text, as far as they are visible.

        A text that is shorter than any useful prefix finds none.
        """
        track_source(*_RECORDS)
        text = spelled(text).removeprefix(HASH_PREFIX)
        if len(text) < SHORTEST_SEARCHED or not HEX.issuperset(text):
            return []
        ids = [
            *await self._records.ids_beginning(text, limit),
            *await self._records.ids_beginning(HASH_PREFIX + text, limit),
        ]
        limited, found = limited_caller(), []
        for context_id in dict.fromkeys(ids):
            stored = await self._records.get(context_id)
            if stored is None:
                continue
            if limited is None or await self._visibility.is_visible(limited, stored):
                found.append(msgspec.convert(stored, RecordSummary, from_attributes=True))
        return found[:limit]

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
        start: datetime | None,
        end: datetime | None,
        limit: int,
        name: str | None,
        freshness_status: str | None,
        caller: str | None,
        cursor: str | None,
    ) -> ContextPage:
        """List contexts, the newest first."""
        _check_limit(limit)
        _check_moments(start=start, end=end)
        statuses = get_args(FreshnessStatus)
        if freshness_status is not None and freshness_status not in statuses:
            raise InvalidInputError(
                f"no freshness_status {freshness_status!r}; {nearest(freshness_status, statuses)}"
            )
        query = RecordQuery(
            start=start,
            end=end,
            name=name,
            freshness_status=freshness_status,
            caller=caller,
            before=cursor,
            limit=limit + 1,
        )
        return await self._page(self._listed(query), limit)

    async def find(self, query: ContextQuery, limit: int, cursor: str | None) -> ContextPage:
        """List contexts with this provenance, the newest first."""
        _check_limit(limit)
        parts = list(self._parts(query))
        if not parts:
            raise InvalidInputError(
                "say what to find contexts by: feature, entity_id, chunk, document or index"
            )
        indexes = await self._indexes()
        groups = [[index.key(*part) for index in indexes] for part in parts]
        found = _in_all([self._in_any(keys, cursor, limit + 1) for keys in groups])
        return await self._page(found, limit)

    async def _listed(self, query: RecordQuery) -> AsyncIterator[RecordSummary]:
        """Yield all contexts of a query; the next page is read when the first one is used up."""
        while page := await self._records.records(query):
            for summary in page:
                yield summary
            if len(page) < query.limit:
                return
            query = msgspec.structs.replace(query, before=page[-1].context_id)

    async def _page(self, listed: AsyncIterator[RecordSummary], limit: int) -> ContextPage:
        """Return a page of `limit` contexts; one more in the list means that another page follows.

        A limited caller gets those that it may read. The cursor is one of them, because another
        would reveal that hidden records exist, unless the search for them takes too long.
        """
        track_source(*_RECORDS)
        limited = limited_caller()
        contexts: list[RecordSummary] = []
        examined = 0
        async for summary in listed:
            examined += 1
            if limited is None or await self._visibility.is_listed(limited, summary):
                if len(contexts) == limit:
                    return ContextPage(contexts=contexts, next_cursor=contexts[-1].context_id)
                contexts.append(summary)
            elif examined >= _MOST_EXAMINED:
                return ContextPage(contexts=contexts, next_cursor=summary.context_id)
        return ContextPage(contexts=contexts, next_cursor=None)

    def _parts(self, query: ContextQuery) -> Iterator[tuple[str, ...]]:
        """Yield the parts that the provenance of a context must contain."""
        if query.entity is not None and query.entity_id is None:
            raise InvalidInputError(
                f"entity {query.entity!r} is given without entity_id; give entity_id as well"
            )
        entity_id = None if query.entity_id is None else str(query.entity_id)
        if query.feature is not None:
            yield ("feature", query.feature, *([] if entity_id is None else [entity_id]))
        if query.entity is not None and entity_id is not None:
            yield ("entity", query.entity, entity_id)
        elif query.feature is None and entity_id is not None:
            yield ("id", entity_id)
        if query.chunk is not None:
            yield ("chunk", query.chunk)
        yield from _document_parts(query.document, query.index)

    async def _indexes(self) -> list[ProvenanceIndex]:
        """Return the index of the settings, if any, and that of the log.

        Records from before `record.index_key` was set have keys of the log's index.
        """
        of_log, configured = (
            ProvenanceIndex(await self._records.index_key()),
            index_of(self._settings),
        )
        return [of_log] if configured is None else [configured, of_log]

    async def _in_any(
        self, keys: Sequence[bytes], cursor: str | None, size: int
    ) -> AsyncIterator[RecordSummary]:
        """Yield contexts with one of the keys, the newest first, each once."""
        pages = {key: await self._records.find(key, before=cursor, limit=size) for key in keys}
        while any(pages.values()):
            newest = max((page[0] for page in pages.values() if page), key=_order)
            yield newest
            for key, page in pages.items():
                if page and page[0].context_id == newest.context_id:
                    before = newest.context_id
                    pages[key] = page[1:] or await self._records.find(
                        key, before=before, limit=size
                    )


def _document_parts(document: str | None, index: str | None) -> Iterator[tuple[str, ...]]:
    if document is None:
        if index is not None:
            yield ("index", index)
    elif index is None:
        yield ("document", document)
    else:
        yield ("indexed", index, document)


def named(ref: str) -> str | None:
    """Return the id or hash if a reference is complete, or None for the beginning of an id."""
    return None if len(ref) < _ID_LENGTH else spelled(ref)


def _order(summary: RecordSummary) -> tuple[datetime, str]:
    return summary.created_at, summary.context_id


async def _in_all(
    lists: Sequence[AsyncIterator[RecordSummary]],
) -> AsyncIterator[RecordSummary]:
    """Yield the contexts that are in all lists, the newest first."""
    heads = [await anext(each, None) for each in lists]
    while all(heads):
        present = [head for head in heads if head is not None]
        oldest = min(present, key=_order)
        if all(head.context_id == oldest.context_id for head in present):
            yield oldest
            heads = [await anext(each, None) for each in lists]
        else:
            heads = [
                await anext(each, None) if _order(head) > _order(oldest) else head
                for each, head in zip(lists, present, strict=True)
            ]


def _check_limit(limit: int) -> None:
    if type(limit) is not int or not 1 <= limit <= LARGEST_PAGE:
        raise InvalidInputError(f"limit is {limit!r}; give a number from 1 to {LARGEST_PAGE}")


def _check_moments(**moments: datetime | None) -> None:
    for name, moment in moments.items():
        if moment is not None and moment.tzinfo is None:
            raise InvalidInputError(f"{name} needs a time zone, for example datetime.now(UTC)")
