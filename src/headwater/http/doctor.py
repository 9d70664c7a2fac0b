"""The route that examines the installation of the server."""

from __future__ import annotations

from importlib import import_module
from itertools import chain

from headwater.api.doctor import Examination
from headwater.http.process_reports import Family, ServerProcesses, all_reports
from headwater.http.routes import Route
from headwater.store.feature_store import FeatureStore

_BREAKERS = "headwater_circuit_breaker_open"


class Doctor:
    """Examines the server, its store and its other ``processes``."""

    def __init__(self, store: FeatureStore, processes: ServerProcesses | None) -> None:
        self._store = store
        self._processes = processes

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/doctor", "admin", self.examine_installation)]

    async def examine_installation(self) -> Examination:
        """Examine configuration, installation, servers and workload."""
        breakers = await open_breakers(self._processes)
        # Loaded on first use: the checks of embeddings load NumPy.
        doctor = import_module("headwater.doctor.examination")
        examination: Examination = await doctor.examine(self._store, open_breakers=breakers)
        return examination


async def open_breakers(processes: ServerProcesses | None) -> list[str]:
    """Return the features whose circuit breaker is open in a process of the server."""
    families = chain.from_iterable(report.metrics for report in await all_reports(processes))
    return sorted({feature for family in families for feature in _open_in(family)})


def _open_in(family: Family) -> list[str]:
    if family.name != _BREAKERS:
        return []
    return [labels["feature"] for _, labels, value in family.samples if value == 1]
