"""The route that examines the installation of the server."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import chain

from headwater.http.routes.process_reports import Report, ServerProcesses, all_reports
from headwater.http.routing.route import Route
from headwater.model.health import Examination
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
        reports = await all_reports(self._processes)
        # Loaded on first use: the checks of embeddings load NumPy.
        doctor = import_module("headwater.doctor.examination")
        examination: Examination = await doctor.examine(
            self._store, open_breakers=open_breakers(reports)
        )
        return examination


def open_breakers(reports: Sequence[Report]) -> list[str]:
    """Return the features whose circuit breaker is open in a process."""
    families = [each for report in reports for each in report.metrics if each.name == _BREAKERS]
    samples = chain.from_iterable(family.samples for family in families)
    return sorted({labels["feature"] for _, labels, value in samples if value == 1})
