"""Routes that show how a store is and was in the last hour, and that examine its installation."""

from __future__ import annotations

import asyncio
import time
from importlib import import_module

from msgspec.structs import replace

from headwater.doctor.overview import StoreOverview, series_of
from headwater.engine.last_hour import HourSample, LastHour
from headwater.http.routes.health import StoreProbe
from headwater.http.routes.process_reports import (
    ServerProcesses,
    all_reports,
    objective_counts,
    open_breakers,
)
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.health import Examination, Overview, Series
from headwater.store.feature_store import FeatureStore

_FRESH_SECONDS = 1.0
# The details of these findings quote errors of user code, which may contain stored values.
_QUOTING = frozenset({"dead letters", "schedules"})
_WITHHELD = "A key with the scope `admin` shows the error"


class Overviews:
    """Shows the state of the whole store, not of one process, and examines the installation.

    The state is read at most once a second, however many pages are open.
    """

    def __init__(
        self, store: FeatureStore, hour: LastHour, processes: ServerProcesses | None
    ) -> None:
        self._store = store
        self._probe = StoreProbe(store)
        self._overview = StoreOverview(store, hour)
        self._hour = hour
        self._processes = processes
        self._reading: asyncio.Task[Overview] | None = None
        self._fresh_until = 0.0
        self._series: tuple[tuple[int, HourSample | None], Series] | None = None

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/doctor", "admin", self.examine_installation),
            Route("GET", "/v1/overview", "metrics", self.read_overview),
            Route("GET", "/v1/series", "metrics", self.read_series),
        ]

    async def examine_installation(self) -> Examination:
        """Examine configuration, installation, servers and workload."""
        reports = await all_reports(self._processes)
        # Loaded on first use: the checks of embeddings load NumPy.
        doctor = import_module("headwater.doctor.examination")
        examination: Examination = await doctor.examine(
            self._store, open_breakers=open_breakers(reports)
        )
        return examination

    async def read_overview(self) -> Overview:
        """Read how the store is and since when, what to look at first, and its parts.

        The errors of your functions are only for keys with the scope `admin`.
        """
        reading = self._reading
        if reading is None or (reading.done() and time.monotonic() > self._fresh_until):
            reading = self._reading = asyncio.create_task(self._read())
        overview = await asyncio.shield(reading)
        caller = current_caller()
        return overview if caller is None or caller.may("admin") else _without_errors(overview)

    async def _read(self) -> Overview:
        parts, reports = await asyncio.gather(self._probe.parts(), all_reports(self._processes))
        failed = [part for report in reports if (part := report.health) and not part.ok]
        overview = await self._overview.read(
            [*parts, *failed], open_breakers(reports), objective_counts(reports)
        )
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


def _without_errors(overview: Overview) -> Overview:
    findings = []
    for finding in overview.findings:
        if finding.check in _QUOTING:
            params = {name: value for name, value in finding.params.items() if name != "error"}
            finding = replace(finding, detail=_WITHHELD, params=params)
        findings.append(finding)
    return replace(overview, findings=findings)
