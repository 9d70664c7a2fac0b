"""Lists of contexts by search keys: those with one of several keys, and those in all of several."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from headwater.core.clock import MICROSECOND
from headwater.model.contexts import RecordSummary
from headwater.ports import RecordLog, RecordQuery


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
