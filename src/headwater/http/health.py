"""Routes for whoever operates the service: is it alive, can it work, what has it done."""

from __future__ import annotations

from typing import Literal

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from headwater.core.logging import log
from headwater.engine.worker import Worker
from headwater.errors import BackendError
from headwater.http.request_metrics import Watch
from headwater.http.responses import JSON, Response
from headwater.http.routes import Route
from headwater.ports import Health
from headwater.store.feature_store import FeatureStore


class Alive(msgspec.Struct, frozen=True):
    """The process answers."""

    status: Literal["ok"] = "ok"


class Readiness(msgspec.Struct, frozen=True):
    """Whether each part of the store can do its work; degraded if it can be used without one."""

    status: Literal["ready", "degraded", "not ready"]
    parts: list[Health]


class Operations:
    """Answers probes and scrapes; for a worker's own port, also whether it takes part."""

    def __init__(self, store: FeatureStore, watch: Watch, worker: Worker | None = None) -> None:
        self._store = store
        self._watch = watch
        self._worker = worker

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/healthz", self.alive, public=True),
            Route("GET", "/readyz", self.ready, public=True, documents=Readiness),
            Route("GET", "/metrics", self.metrics, documents=str),
        ]

    async def alive(self) -> Alive:
        """Says that the process is alive."""
        return Alive()

    async def ready(self) -> Response:
        """Says whether the store can be used; 503 and what is wrong if not."""
        try:
            parts = await self._store.admin.health()
        except BackendError as error:
            parts = [Health("store", ok=False, detail=str(error))]
        if self._worker is not None:
            parts.append(self._worker.health())
        if all(part.ok for part in parts):
            return Response(200, msgspec.json.encode(Readiness("ready", parts)))
        for part in parts:
            if not part.ok:
                log.warning("not ready", part=part.name, detail=part.detail)
        if self._store.settings.api_keys:
            # Probes carry no key, and the detail names folders and hosts: the log has it.
            parts = [msgspec.structs.replace(part, detail="") for part in parts]
        if all(part.ok or not part.needed for part in parts):
            return Response(200, msgspec.json.encode(Readiness("degraded", parts)))
        body = msgspec.json.encode(Readiness("not ready", parts))
        return Response(503, body, JSON, ((b"retry-after", b"1"),))

    async def metrics(self) -> Response:
        """Gives the metrics in Prometheus's text format."""
        self._watch.flush()
        return Response(200, generate_latest(), CONTENT_TYPE_LATEST.encode())
