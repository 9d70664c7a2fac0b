"""Reads of the real history; concurrent reads are sent together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple, TypeVar

from headwater.errors import ReplayWriteError
from headwater.ports import Change, HistoryRow, OfflineStore, PastValue, Point, Pruned

T = TypeVar("T")


class ReadOnlyHistory:
    """A history that is not written; what a subclass does not replace is read from the real one."""

    def __init__(self, real: OfflineStore) -> None:
        self._real = real
        self.latest, self.read_frame = real.latest, real.read_frame
        self.write_series, self.export_history = real.write_series, real.export_history
        self.export_events, self.events_after = real.export_events, real.events_after
        self.events_of, self.query, self.prepare = real.events_of, real.query, real.prepare

    async def append(self, changes: Sequence[Change]) -> int:
        """Raise ReplayWriteError."""
        raise ReplayWriteError("append")

    async def prune(
        self, *, history: datetime | None, events: datetime | None, dry_run: bool = False
    ) -> Pruned:
        """Raise ReplayWriteError."""
        raise ReplayWriteError("prune")

    async def drop(self, series: str) -> int:
        """Raise ReplayWriteError."""
        raise ReplayWriteError("drop")

    async def forget(
        self, entity: str, entity_id: str, *, keep: Collection[str] = (), dry_run: bool = False
    ) -> Pruned:
        """Raise ReplayWriteError."""
        raise ReplayWriteError("forget")

    async def maintain(self) -> None:
        """Do nothing."""


Values = dict[Point, list[PastValue | None]]
Pages = dict[str, list[HistoryRow]]


class _Points(NamedTuple):
    """Points that are looked up together, and their values when these are there."""

    points: dict[Point, None]
    values: asyncio.Future[Values]


class _Span(NamedTuple):
    """Entity ids whose rows of some time are read together, and the rows when these are there."""

    ids: dict[str, None]
    starts: list[datetime | None]
    ends: list[datetime | None]
    pages: asyncio.Future[Pages]

    @property
    def bounds(self) -> tuple[datetime | None, datetime | None]:
        """The time that all readers need."""
        start = None if None in self.starts else min(filter(None, self.starts))
        return start, None if None in self.ends else max(filter(None, self.ends))


class Lookups:
    """Reads of history by many callers: while one call of the history runs, the next ones gather.

    A call takes milliseconds, however little it reads.
    """

    def __init__(self, offline: OfflineStore) -> None:
        self._offline = offline
        self._points: dict[tuple[tuple[str, ...], bool], _Points] = {}
        self._spans: dict[tuple[str, int], _Span] = {}
        self._running: asyncio.Task[None] | None = None

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool
    ) -> list[list[PastValue | None]]:
        """Return the values of features as `OfflineStore.as_of` does."""
        if not features or not points:
            return [[None] * len(features) for _ in points]
        lookup = self._points.get((tuple(features), known))
        if lookup is None:
            lookup = _Points({}, asyncio.get_running_loop().create_future())
            self._points[tuple(features), known] = lookup
        lookup.points.update(dict.fromkeys(points))
        values = await self._started(lookup.values)
        return [list(values[point]) for point in points]

    async def rows(
        self,
        series: str,
        entity_ids: Sequence[str],
        *,
        start: datetime | None,
        end: datetime | None,
        limit: int,
    ) -> list[list[HistoryRow]]:
        """Return the rows of a series as `OfflineStore.rows` does."""
        span = self._spans.get((series, limit))
        if span is None:
            span = _Span({}, [], [], asyncio.get_running_loop().create_future())
            self._spans[series, limit] = span
        span.ids.update(dict.fromkeys(entity_ids))
        span.starts.append(start)
        span.ends.append(end)
        pages = await self._started(span.pages)
        if span.bounds != (start, end) and any(
            # Rows that only others asked for may have taken the place of some.
            len(pages[one]) == limit and (start is None or pages[one][-1].as_of >= start)
            for one in entity_ids
        ):
            return await self._offline.rows(series, entity_ids, start=start, end=end, limit=limit)
        return [list(between(pages[one], start, end)) for one in entity_ids]

    async def _started(self, answer: asyncio.Future[T]) -> T:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await asyncio.shield(answer)

    async def _run(self) -> None:
        """Look up the waiting reads until none is left."""
        try:
            while self._points or self._spans:
                await asyncio.sleep(0)  # the other callers that are ready add theirs
                if self._points:
                    (features, known), lookup = self._points.popitem()
                    await _answer(
                        lookup.values, self._values(features, [*lookup.points], known=known)
                    )
                if self._spans:
                    (series, limit), span = self._spans.popitem()
                    await _answer(span.pages, self._pages(series, span, limit))
        finally:
            self._running = None

    async def _values(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool
    ) -> Values:
        rows = await self._offline.as_of(features, points, known=known)
        return dict(zip(points, rows, strict=True))

    async def _pages(self, series: str, span: _Span, limit: int) -> Pages:
        ids, (start, end) = list(span.ids), span.bounds
        pages = await self._offline.rows(series, ids, start=start, end=end, limit=limit)
        return dict(zip(ids, pages, strict=True))


async def _answer(waiting: asyncio.Future[T], work: Coroutine[Any, Any, T]) -> None:
    try:
        waiting.set_result(await work)
    except Exception as error:  # noqa: BLE001 - raised by those who wait
        waiting.set_exception(error)


def between(
    rows: Iterable[HistoryRow], start: datetime | None, end: datetime | None
) -> Iterator[HistoryRow]:
    """Yield the rows of a span of time."""
    for row in rows:
        if (start is None or row.as_of >= start) and (end is None or row.as_of < end):
            yield row
