"""States of windows made again from the contributions in history, also while workers fold."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from headwater.core.batching import batched
from headwater.core.clock import MICROSECOND, Clock, from_micros, to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.windows import WindowDef
from headwater.model.values import Cell
from headwater.ports import Backends, HistoryRow, Ledger
from headwater.windows.plan import Member
from headwater.windows.state import (
    WindowState,
    covers,
    decode_state,
    encode_state,
    evaluate,
    fold,
    new_state,
)

_ENTITIES = 100
_ROWS = 2_000
_decode = msgspec.json.decode

Contributions = AsyncIterator[tuple[str, Sequence[HistoryRow]]]
"""Some of the contributions of an entity at a time, in any order."""


class WindowStates:
    """Makes the states of families again, as workers would have folded them."""

    def __init__(self, backends: Backends) -> None:
        self._offline = backends.offline
        self._online = backends.online
        self._erasures = backends.erasures

    async def rebuild(self, family: FeatureDef, entity_ids: Sequence[str], clock: Clock) -> int:
        """Make the online states of some entities again; return how many were written.

        A contribution is in history as soon as its commit has returned. One that is folded after
        history was read changes the online state, so that the replacement is tried again.
        """
        written = 0
        for batch in batched(entity_ids, _ENTITIES):
            ids = list(batch)
            while ids:
                stored = await self._online.get(family.entity.name, ids)
                expected = {
                    i: cells.get(family.series) for i, cells in zip(ids, stored, strict=True)
                }
                made = await self.made_again(family, ids, clock.micros())
                ids = list(
                    await self._online.replace(
                        family.entity.name, family.series, {i: (expected[i], made[i]) for i in made}
                    )
                )
                written += len(made) - len(ids)
        return written

    async def renew(self, family: FeatureDef, partition: int, clock: Clock) -> int:
        """Make the states of a partition again that are of another plan; return their number."""
        plan, series, entity = _windows_of(family).plan, family.series, family.entity.name
        renewed, after = 0, ""
        while ids := await self._online.entity_ids(
            entity, after=after, limit=_ENTITIES, partition=partition, having=series
        ):
            cells = zip(ids, await self._online.get(entity, ids), strict=True)
            outdated = [
                entity_id
                for entity_id, held in cells
                if series in held and decode_state(plan, held[series].value) is None
            ]
            renewed += await self.rebuild(family, outdated, clock)
            after = ids[-1]
        return renewed

    async def made_again(
        self, family: FeatureDef, entity_ids: Sequence[str], now: int, known: int | None = None
    ) -> Mapping[str, Cell | None]:
        """Return the states of some entities at a moment; None if nothing contributed to one.

        One whose contributions are all too old has a state without tiles: longer windows, which may
        be declared later, need to know that there are some. With ``known``, it is the state of the
        contributions that were written until then.
        """
        windows = _windows_of(family)
        folding = {entity_id: _Folding(windows, now, known) for entity_id in entity_ids}
        start = from_micros(now - windows.plan.reach)
        for batch in batched(entity_ids, _ENTITIES):
            async for entity_id, rows in self._contributions(family, list(batch), start):
                folding[entity_id].add(rows)
                await asyncio.sleep(0)  # folding thousands of rows takes a while
        empty = [entity_id for entity_id, one in folding.items() if one.is_empty]
        for batch in batched(empty, _ENTITIES):
            async for entity_id, rows in self._newest(family, list(batch)):
                folding[entity_id].add(rows)
        return {entity_id: one.cell() for entity_id, one in folding.items()}

    async def _contributions(
        self, family: FeatureDef, entity_ids: Sequence[str], start: datetime
    ) -> Contributions:
        """Yield the contributions of some entities since a moment."""
        pages = await self._offline.rows(family.series, entity_ids, start=start, limit=_ROWS)
        ledger = await self._erasures.refresh()
        for entity_id, page in zip(entity_ids, pages, strict=True):
            async for rows in self._all_pages(family, entity_id, start, page):
                yield entity_id, _admitted(ledger, family, entity_id, rows)

    async def _newest(self, family: FeatureDef, entity_ids: Sequence[str]) -> Contributions:
        """Yield the newest contribution of some entities."""
        pages = await self._offline.rows(family.series, entity_ids, limit=1)
        ledger = await self._erasures.refresh()
        for entity_id, page in zip(entity_ids, pages, strict=True):
            yield entity_id, _admitted(ledger, family, entity_id, page)

    async def _all_pages(
        self, family: FeatureDef, entity_id: str, start: datetime, page: Sequence[HistoryRow]
    ) -> AsyncIterator[Sequence[HistoryRow]]:
        """Yield a page of an entity's newest contributions, and the older ones."""
        limit = _ROWS
        while len(page) == limit:
            # Of the page's oldest moment there may be more, so the next page begins with it.
            oldest = page[-1].as_of
            newer = [row for row in page if row.as_of > oldest]
            yield newer
            if not newer:
                limit *= 2
            (page,) = await self._offline.rows(
                family.series, [entity_id], start=start, end=oldest + MICROSECOND, limit=limit
            )
        yield page


class _Folding:
    """The state of one entity while its contributions are folded, in any order."""

    def __init__(self, windows: WindowDef, now: int, known: int | None = None) -> None:
        self._windows = windows
        self._now = now
        self._known = known
        self._state: WindowState | None = None
        self._as_of = self._written_at = 0

    @property
    def is_empty(self) -> bool:
        """Whether there was no contribution so far."""
        return self._state is None

    def add(self, rows: Sequence[HistoryRow]) -> None:
        """Fold contributions, which are newest first."""
        plan, now = self._windows.plan, self._now
        for row in reversed(rows):  # in their order most are of the open tile, which is faster
            at, written_at = to_micros(row.as_of), to_micros(row.written_at)
            if self._known is not None and written_at > self._known:
                continue
            taken = self._windows.taken(_decode(row.value))
            if self._state is None:
                self._state = new_state(plan, now)
            if taken is not None:
                fold(plan, self._state, *taken, at, written_at, now)
            self._as_of = max(self._as_of, at)
            self._written_at = max(self._written_at, written_at)

    def cell(self) -> Cell | None:
        """Return the state; None if there was no contribution."""
        if self._state is None:
            return None
        state = encode_state(self._windows.plan, self._state)
        return Cell(msgspec.Raw(state), self._as_of, self._written_at, None, derived=False)


def values_at(family: FeatureDef, cell: Cell | None, moment: int) -> dict[str, Any] | None:
    """Return the values of all features of a family in a state; None if it cannot be read.

    It cannot if it is of another plan, or if tiles of the moment were dropped.
    """
    windows = _windows_of(family)
    plan, state = windows.plan, None
    if cell is not None:
        state = decode_state(plan, cell.value)
        if state is None or not covers(plan, state, moment):
            return None
    members = [Member(window, one) for window in plan.windows for one in plan.aggregates]
    return dict(zip(windows.members, evaluate(plan, state, members, moment), strict=True))


def _windows_of(family: FeatureDef) -> WindowDef:
    if family.windows is None:
        raise TypeError(f"{family.name} has no windows")
    return family.windows


def _cell_of(row: HistoryRow) -> Cell:
    return Cell(msgspec.Raw(row.value), to_micros(row.as_of), to_micros(row.written_at))


def _admitted(
    ledger: Ledger, family: FeatureDef, entity_id: str, rows: Sequence[HistoryRow]
) -> Sequence[HistoryRow]:
    """Return the rows but none of before an erasure.

    The rows of an erased entity may still be there, and its first one of after it as well.
    """
    tombstone = ledger.find(family.entity.name, entity_id)
    if tombstone is None:
        return rows
    return [row for row in rows if tombstone.admits(_cell_of(row))]
