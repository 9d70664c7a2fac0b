"""The route that examines the installation of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import chain

from headwater.api.doctor import Examination
from headwater.http.process_reports import Family, WorkerProcesses, own_metrics
from headwater.http.routes import Route
from headwater.store.feature_store import FeatureStore

_BREAKERS = "headwater_circuit_breaker_open"


class Doctor:
    """Examines the server, its store and its worker ``processes``."""

    def __init__(self, store: FeatureStore, processes: WorkerProcesses | None) -> None:
        self._store = store
        self._processes = processes

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/doctor", "admin", self.examine_installation)]

    async def examine_installation(self) -> Examination:
        """Examine configuration, installation, servers and workload."""
        reports = {} if self._processes is None else await self._processes.reports()
        metrics = [own_metrics(), *(report.metrics for report in reports.values())]
        breakers = sorted(set(_open_breakers(metrics)))
        # Loaded on first use: the checks of embeddings load NumPy.
        doctor = import_module("headwater.doctor.examination")
        examination: Examination = await doctor.examine(self._store, open_breakers=breakers)
        return examination


def _open_breakers(metrics: Iterable[Iterable[Family]]) -> Iterator[str]:
    for family in chain.from_iterable(metrics):
        if family.name == _BREAKERS:
            yield from (labels["feature"] for _, labels, value in family.samples if value == 1)
