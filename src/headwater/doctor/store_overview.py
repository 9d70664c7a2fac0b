"""Reading the overview of a store, also of one that does not answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from headwater.backends.inspection import inspect
from headwater.declarations.runtime import runtime_of
from headwater.doctor.overview import overview_of
from headwater.doctor.workload import Workload, judge, observe, unobserved
from headwater.engine.last_hour import LastHour
from headwater.errors import HeadwaterError
from headwater.model.health import Concern, Finding, Findings, Health, Overview, OverviewStatus
from headwater.model.indexes import IndexStatus
from headwater.ports import Cached
from headwater.store.feature_store import FeatureStore

_ANSWER_SECONDS = 2.0
_INSPECTION_SECONDS = 60.0
_FIRST_INSPECTION_SECONDS = 0.5
_KEPT = timedelta(days=3650)


class _Known(msgspec.Struct, frozen=True):
    """The status that was shown last, and since when the store has it."""

    status: OverviewStatus
    since: datetime


class _Observed(NamedTuple):
    workload: Workload
    indexes: Sequence[IndexStatus]
    problem: str = ""


_decode = msgspec.json.Decoder(_Known).decode


class StoreOverview:
    """The overview of a store; its backends are inspected once a minute, in the background."""

    def __init__(self, store: FeatureStore, hour: LastHour) -> None:
        self._store = store
        self._hour = hour
        self._inspected: list[Finding] = []
        self._inspecting: asyncio.Task[list[Finding]] | None = None
        self._inspected_at = -_INSPECTION_SECONDS

    async def read(self, health: Sequence[Health], open_breakers: Sequence[str]) -> Overview:
        """Return how the store is, given the health of its parts and what the workers know."""
        samples = self._hour.samples().samples
        observed, inspected = await asyncio.gather(self._observe(health), self._inspections())
        findings = judge(self._store, observed.workload, open_breakers, samples)
        if observed.problem and all(part.ok for part in health):
            findings += _unanswered(observed.problem)
        overview = overview_of(observed.workload, findings, inspected, observed.indexes, samples)
        if observed.problem:
            overview = replace(overview, waiting=None, dead_letters=None)
        return replace(overview, since=await self._since(overview))

    async def _observe(self, health: Sequence[Health]) -> _Observed:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                return _Observed(await observe(self._store, health), await self._indexes())
        except TimeoutError:
            problem = f"it did not answer within {_ANSWER_SECONDS:g} s"
        except HeadwaterError as error:
            problem = str(error)
        return _Observed(unobserved(self._store, health), [], problem)

    async def _indexes(self) -> Sequence[IndexStatus]:
        try:
            return await self._store.indexes.list()
        except HeadwaterError:
            return []  # the health of their server says why

    async def _inspections(self) -> list[Finding]:
        """Return what the last inspection of the backends found; wait only for the first."""
        is_first = self._inspecting is None
        now = time.monotonic()
        is_running = self._inspecting is not None and not self._inspecting.done()
        if not is_running and now - self._inspected_at >= _INSPECTION_SECONDS:
            self._inspected_at = now
            self._inspecting = asyncio.create_task(inspect(self._store.settings, self._store.clock))
        if self._inspecting is not None:
            seconds = _FIRST_INSPECTION_SECONDS if is_first else 0
            await asyncio.wait({self._inspecting}, timeout=seconds)
            if self._inspecting.done():
                self._inspected = self._inspecting.result()
        return self._inspected

    async def _since(self, overview: Overview) -> datetime | None:
        """Return since when the store has its status, as far as anybody looked."""
        key = f"overview:{self._store.settings.worker.consumer_group}"
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                engine = await runtime_of(self._store).open()
                stored = await engine.backends.notes.get(key)
                last = _decode(stored.value) if stored else None
                if last is None or last.status != overview.status:
                    last = _Known(overview.status, overview.since or overview.at)
                    value = Cached(msgspec.json.encode(last), engine.clock.micros())
                    await engine.backends.notes.put(key, value, _KEPT)
        except (TimeoutError, HeadwaterError):
            return overview.since
        return min(last.since, overview.since or last.since)


def _unanswered(problem: str) -> list[Finding]:
    report = Findings("workload", "the store")
    concern = Concern(subject="The store", summary="does not answer", detail=problem)
    report.concern("error", "store", problem, "see `GET /readyz` and the log", concern)
    return report.all
