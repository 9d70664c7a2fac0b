"""Routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

import asyncio

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, Gauge, generate_latest

from headwater.access.guard import has_access_control
from headwater.core.logging import log
from headwater.engine.worker.worker import Worker
from headwater.http.routes.process_reports import MergedMetrics, ServerProcesses, all_reports
from headwater.http.routes.readiness import StoreProbe
from headwater.http.routing.request_metrics import RequestMetrics
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.health import Alive, Readiness
from headwater.store.feature_store import FeatureStore

READY = Gauge(
    "headwater_ready",
    "1 if the last `GET /readyz` found a part to work, 0 if not; missing until the first one.",
    ["part"],
)


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
        parts = [*parts, *own, *(each.health for each in reports if each.health)]
        for part in parts:
            READY.labels(part.name).set(part.ok)
        failed = [part for part in parts if not part.ok]
        for part in failed:
            log.warning("not ready", part=part.name, detail=part.detail)
        if failed and self._has_keys and not _sees_details():
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


def _sees_details() -> bool:
    """Return whether the request has a key that may read metrics."""
    caller = current_caller()
    return caller is not None and caller.may("metrics")
