"""Routes that show how a store is and was in the last hour."""

from __future__ import annotations

import asyncio
import time

from headwater.api.overview import Overview, Series
from headwater.doctor.overview import series_of
from headwater.doctor.store_overview import StoreOverview
from headwater.engine.last_hour import LastHour, Sample
from headwater.http.doctor import open_breakers
from headwater.http.process_reports import ServerProcesses, all_reports
from headwater.http.readiness import StoreProbe
from headwater.http.routes import Route
from headwater.store.feature_store import FeatureStore

_FRESH_SECONDS = 1.0


class Overviews:
    """Shows the state of the whole store, not of one process.

    It is read at most once a second, however many pages are open.
    """

    def __init__(
        self, store: FeatureStore, hour: LastHour, processes: ServerProcesses | None
    ) -> None:
        self._probe = StoreProbe(store)
        self._overview = StoreOverview(store, hour)
        self._hour = hour
        self._processes = processes
        self._reading: asyncio.Task[Overview] | None = None
        self._fresh_until = 0.0
        self._series: tuple[tuple[int, Sample | None], Series] | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/overview", "metrics", self.read_overview),
            Route("GET", "/v1/series", "metrics", self.read_series),
        ]

    async def read_overview(self) -> Overview:
        """Read how the store is and since when, what to look at first, and its parts."""
        reading = self._reading
        if reading is None or (reading.done() and time.monotonic() > self._fresh_until):
            reading = self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(reading)

    async def _read(self) -> Overview:
        parts, reports = await asyncio.gather(self._probe.parts(), all_reports(self._processes))
        failed = [each.health for each in reports if each.health and not each.health.ok]
        overview = await self._overview.read([*parts, *failed], open_breakers(reports))
        self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return overview

    async def read_series(self) -> Series:
        """Read the numbers of the last hour in steps of ten seconds.

        The server keeps them in the store, so that they survive a restart.
        """
        hour = self._hour.samples()
        newest = (hour.end, hour.samples[-1])
        if self._series is None or self._series[0] != newest:
            self._series = (newest, series_of(*hour))
        return self._series[1]
