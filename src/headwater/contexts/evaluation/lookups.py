"""Reads of the real history: those that many callers wait for go together."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

from headwater.errors import ReplayWriteError
from headwater.ports import Change, OfflineStore, PastValue, Point, Pruned

_Row = list[PastValue | None]


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


class _Lookup(NamedTuple):
    """Points that are looked up together, and their values when these are there."""

    points: dict[Point, None]
    values: asyncio.Future[dict[Point, _Row]]


class Lookups:
    """Point-in-time reads of many callers: one call of the history runs, the next ones gather."""

    def __init__(self, offline: OfflineStore) -> None:
        self._offline = offline
        self._waiting: dict[tuple[tuple[str, ...], bool], _Lookup] = {}
        self._running: asyncio.Task[None] | None = None

    async def as_of(
        self, features: Sequence[str], points: Sequence[Point], *, known: bool
    ) -> list[_Row]:
        """Return the values of features as `OfflineStore.as_of` does."""
        if not features or not points:
            return [[None] * len(features) for _ in points]
        key = (tuple(features), known)
        lookup = self._waiting.get(key)
        if lookup is None:
            lookup = _Lookup({}, asyncio.get_running_loop().create_future())
            self._waiting[key] = lookup
        lookup.points.update(dict.fromkeys(points))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        values = await asyncio.shield(lookup.values)
        return [list(values[point]) for point in points]

    async def _run(self) -> None:
        """Look up what is waiting until nothing is."""
        try:
            while self._waiting:
                await asyncio.sleep(0)  # the other callers that are ready add their points
                (features, known), lookup = self._waiting.popitem()
                points = list(lookup.points)
                try:
                    rows = await self._offline.as_of(features, points, known=known)
                except Exception as error:  # noqa: BLE001 - raised by those who wait
                    lookup.values.set_exception(error)
                else:
                    lookup.values.set_result(dict(zip(points, rows, strict=True)))
        finally:
            self._running = None
