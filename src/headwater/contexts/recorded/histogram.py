"""How many recorded contexts there were over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import get_args

import msgspec
from msgspec.structs import replace

from headwater.contexts.recorded.search import ContextQuery, ContextSearch, Listing
from headwater.core.clock import MICROSECOND, from_micros, to_micros
from headwater.errors import InvalidInputError
from headwater.features.caller_limits import limited_caller
from headwater.model.contexts import MOST_BUCKETS, ContextHistogram, HistogramBucket, RecordSummary
from headwater.model.lineage import FreshnessStatus
from headwater.ports import RecordLog, RecordQuery

# Counting a million takes a tenth of a second.
_MOST_COUNTED = 1_000_000
# These are read one by one.
_MOST_READ = 10_000
_READ_AT_ONCE = 1_000
_INTERVALS_AT_ONCE = 20
_SECOND = 1_000_000
_MINUTE, _HOUR, _DAY = 60 * _SECOND, 3_600 * _SECOND, 86_400 * _SECOND
_WIDTHS = (
    *(1_000, 10_000, 100_000),
    *(n * _SECOND for n in (1, 2, 5, 10, 15, 30)),
    *(n * _MINUTE for n in (1, 2, 5, 10, 15, 30)),
    *(n * _HOUR for n in (1, 2, 3, 6, 12)),
    *(n * _DAY for n in (1, 2, 7, 14, 28, 91, 365)),
)


class _Counted(msgspec.Struct):
    """Counts of the last intervals between edges: how many, and by freshness status."""

    contexts: list[int]
    freshness: list[Counter[str]] | None


class Histograms:
    """Counts recorded contexts, with an index if one has all that is needed."""

    def __init__(self, records: RecordLog, search: ContextSearch) -> None:
        self._records = records
        self._search = search

    async def histogram(self, query: ContextQuery, buckets: int) -> ContextHistogram:
        """Count the contexts of a query in at most so many buckets."""
        if type(buckets) is not int or not 1 <= buckets <= MOST_BUCKETS:
            raise InvalidInputError(f"buckets is {buckets!r}; give a number from 1 to 500")
        query.check()
        if limited_caller() is not None or query.prefix is not None or query.outcomes():
            return await self._of_read(query, buckets)
        edges = edges_of(await self._extent(query), buckets)
        if not edges:
            return _EMPTY
        groups = await self._search.keys(query)
        if not groups:
            return _histogram(edges, await self._by_status(query, edges))
        if len(groups) > 1 or query != replace(
            query, name=None, freshness_status=None, caller=None
        ):
            return await self._of_read(query, buckets)
        counted = [await self._of_keys(keys, edges) for keys in groups[0]]
        counted = [counts for counts in counted if any(counts.contexts)]
        # A context may be found by several of them.
        if len(counted) != 1 or sum(counted[0].contexts) <= _MOST_READ:
            return await self._of_read(query, buckets)
        return _histogram(edges, counted[0])

    async def _extent(self, query: ContextQuery) -> tuple[datetime, datetime] | None:
        """Return the first and the last moment of the histogram."""
        moments = [query.start, query.end and query.end - timedelta(microseconds=1)]
        for place, moment in enumerate(moments):
            if moment is None:
                order = Listing(1, reverse=place == 0)
                async for summary, _ in self._search.examined(query, order):
                    moments[place] = summary.created_at
                    break
        first, last = moments
        return None if first is None or last is None or first > last else (first, last)

    async def _by_status(self, query: ContextQuery, edges: Sequence[datetime]) -> _Counted:
        """Count by an index, the newest intervals first."""
        statuses = [query.freshness_status or status for status in get_args(FreshnessStatus)]
        freshness: list[Counter[str]] = []
        for portion in _portions(edges):
            counted = [Counter[str]() for _ in portion[1:]]
            for status in dict.fromkeys(statuses):
                by_status = RecordQuery(
                    name=query.name, caller=query.caller, freshness_status=status
                )
                counts = await self._records.count(by_status, portion, _MOST_COUNTED)
                for counter, count in zip(counted, counts, strict=True):
                    counter[status] = count
            freshness = counted + freshness
            if sum(counter.total() for counter in freshness) >= _MOST_COUNTED:
                break
        return _Counted([counter.total() for counter in freshness], freshness)

    async def _of_keys(self, keys: Iterable[bytes], edges: Sequence[datetime]) -> _Counted:
        """Count the records with one of the keys; no record has two."""
        counts: list[int] = []
        for portion in _portions(edges):
            by_key = [await self._records.count_found(key, portion, _MOST_COUNTED) for key in keys]
            counts = [sum(column) for column in zip(*by_key, strict=True)] + counts
            if sum(counts) >= _MOST_COUNTED:
                break
        return _Counted(counts, None)

    async def _of_read(self, query: ContextQuery, buckets: int) -> ContextHistogram:
        """Read the newest contexts that the caller may read, and count them."""
        summaries: list[RecordSummary] = []
        reached: datetime | None = None
        examined = 0
        async for summary, is_listed in self._search.examined(query, Listing(_READ_AT_ONCE)):
            examined += 1
            if examined > _MOST_READ:
                reached = summary.created_at
                break
            if is_listed:
                summaries.append(summary)
        moments = [context.created_at for context in summaries]
        first = query.start or min(moments, default=None)
        last = query.end and query.end - timedelta(microseconds=1)
        last = last or max(moments, default=None)
        edges = edges_of(None if first is None or last is None else (first, last), buckets)
        if not edges:
            return _EMPTY
        whole = [edge for edge in edges if reached is None or edge > reached]
        counted = whole if len(whole) > 1 else edges[-2:]
        freshness = [Counter[str]() for _ in counted[1:]]
        width = to_micros(edges[1]) - to_micros(edges[0])
        for context in summaries:
            place = (to_micros(context.created_at) - to_micros(counted[0])) // width
            if 0 <= place < len(freshness):
                freshness[place][context.freshness_status] += 1
        return _histogram(
            edges,
            _Counted([counter.total() for counter in freshness], freshness),
            counted_from=None if reached is None else max(counted[0], reached + MICROSECOND),
        )


_EMPTY = ContextHistogram(
    start=None, end=None, seconds=0.0, contexts=0, counted_from=None, buckets=[]
)


def edges_of(extent: tuple[datetime, datetime] | None, buckets: int) -> list[datetime]:
    """Return the edges of at most so many equal intervals that contain both moments.

    They are multiples of a round width, so that the next request has the same ones.
    """
    if extent is None or extent[0] > extent[1]:
        return []
    first, last = map(to_micros, extent)
    for width in _WIDTHS:
        start = first // width * width
        if (last - start) // width < buckets:
            break
    else:
        start, width = first, (last - first) // buckets + 1
    count = (last - start) // width + 1
    return [from_micros(start + number * width) for number in range(count + 1)]


def _portions(edges: Sequence[datetime]) -> Iterable[Sequence[datetime]]:
    """Yield edges of some intervals at a time, the newest first."""
    for last in range(len(edges) - 1, 0, -_INTERVALS_AT_ONCE):
        yield edges[max(0, last - _INTERVALS_AT_ONCE) : last + 1]


def _histogram(
    edges: Sequence[datetime], counts: _Counted, counted_from: datetime | None = None
) -> ContextHistogram:
    """Return the histogram of counts of the last intervals."""
    starts = edges[-1 - len(counts.contexts) : -1]
    freshness: Sequence[Counter[str] | None] = counts.freshness or [None] * len(starts)
    first, second = next(pairwise(edges))
    incomplete = [] if starts[0] == first else [starts[0]]
    incomplete += [] if counted_from is None else [counted_from]
    ends = zip(edges[-len(starts) :], counts.contexts, strict=True)
    incomplete += [end for end, count in ends if count >= _MOST_COUNTED]
    return ContextHistogram(
        start=first,
        end=edges[-1],
        seconds=(second - first).total_seconds(),
        contexts=sum(counts.contexts),
        counted_from=max(incomplete, default=None),
        buckets=[
            HistogramBucket(
                start=start,
                contexts=count,
                freshness=None
                if by_status is None
                else {status: by_status[status] for status in get_args(FreshnessStatus)},
            )
            for start, count, by_status in zip(starts, counts.contexts, freshness, strict=True)
        ],
    )
