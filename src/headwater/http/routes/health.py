"""Routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

import asyncio
import time

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest

from headwater.access.guard import has_access_control
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.worker import Worker
from headwater.errors import BackendError
from headwater.http.routes.process_reports import MergedMetrics, ServerProcesses, all_reports
from headwater.http.routing.request_metrics import RequestMetrics
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.health import Alive, Health, Readiness
from headwater.ports import HealthCheck
from headwater.store.feature_store import FeatureStore

READY = Gauge(
    "headwater_ready",
    "1 if the last `GET /readyz` found a part to work, 0 if not; missing until the first one.",
    ["part"],
)


_ANSWER_SECONDS = 0.8
_FRESH_SECONDS = 1.0


class StoreProbe:
    """The health of each part of a store, checked at most once a second.

    A part that does not answer in time has failed. Its check goes on, and the next answer waits for
    that check instead of starting another one.
    """

    def __init__(self, store: FeatureStore) -> None:
        self._runtime = runtime_of(store)
        self._round: asyncio.Task[list[Health]] | None = None
        self._fresh_until = 0.0
        self._checking: dict[str, asyncio.Task[Health]] = {}

    async def parts(self) -> list[Health]:
        """Return the health of each part, at most about a second old."""
        if self._round is None or (self._round.done() and time.monotonic() > self._fresh_until):
            self._round = asyncio.create_task(self._check_all())
        return await asyncio.shield(self._round)

    async def _check_all(self) -> list[Health]:
        deadline = time.monotonic() + _ANSWER_SECONDS
        opened = await self._check(HealthCheck("store", self._open), deadline)
        parts = [opened]
        if opened.ok:
            checks = (await self._runtime.open()).backends.lifecycle.checks()
            parts = await asyncio.gather(*(self._check(check, deadline) for check in checks))
        self._fresh_until = time.monotonic() + _FRESH_SECONDS
        return parts

    async def _open(self) -> Health:
        try:
            await self._runtime.open()
        except BackendError as error:
            return Health("store", ok=False, detail=str(error))
        return Health("store", ok=True)

    async def _check(self, check: HealthCheck, deadline: float) -> Health:
        task = self._checking.get(check.name)
        if task is None or task.done():
            task = self._checking[check.name] = asyncio.ensure_future(check.run())
        await asyncio.wait({task}, timeout=max(0.0, deadline - time.monotonic()))
        if task.done():
            return task.result()
        detail = f"did not answer within {_ANSWER_SECONDS:g} s; check its load and the network"
        return Health(check.name, ok=False, detail=detail, needed=check.needed)


class Probes:
    """Answers health probes and metric scrapes of a server or, with ``worker``, of a worker.

    The answers of a server include its other ``processes``.
    """

    def __init__(
        self,
        store: FeatureStore,
        metrics: RequestMetrics,
        *,
        worker: Worker | None = None,
        processes: ServerProcesses | None = None,
    ) -> None:
        self._probe = StoreProbe(store)
        self._has_keys = has_access_control(store.settings)
        self._metrics = metrics
        self._worker = worker
        self._processes = processes

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/healthz", "public", self.alive),
            Route("GET", "/readyz", "public", self.ready, documents=Readiness, failing_status=503),
            Route("GET", "/metrics", "metrics", self.metrics, returns="text/plain", documents=str),
        ]

    async def alive(self) -> Alive:
        """Return that the process is running."""
        return Alive()

    async def ready(self) -> ApiResponse:
        """Return the health of each part of the store; 503 if a required part has failed.

        If requests need keys, the details of a failed part are only for keys with the scope
        `metrics`.
        """
        parts, reports = await asyncio.gather(self._probe.parts(), all_reports(self._processes))
        own = [] if self._worker is None else [self._worker.health()]
        parts = [*parts, *own, *(report.health for report in reports if report.health)]
        for part in parts:
            READY.labels(part.name).set(part.ok)
        failed = [part for part in parts if not part.ok]
        for part in failed:
            log.warning("not ready", part=part.name, detail=part.detail)
        caller = current_caller()
        sees_details = caller is not None and caller.may("metrics")
        if failed and self._has_keys and not sees_details:
            # Probes send no key, and details name folders and hosts: they stay in the log.
            parts = [msgspec.structs.replace(part, detail="") for part in parts]
        if any(part.needed for part in failed):
            body = msgspec.json.encode(Readiness("not ready", parts))
            return ApiResponse(body, 503, {"retry-after": "1"})
        return ApiResponse(msgspec.json.encode(Readiness("degraded" if failed else "ready", parts)))

    async def metrics(self) -> ApiResponse:
        """Return the metrics in the Prometheus text format."""
        self._metrics.flush()
        merged = MergedMetrics(await all_reports(self._processes))
        return ApiResponse(generate_latest(merged), media_type=CONTENT_TYPE_LATEST)
