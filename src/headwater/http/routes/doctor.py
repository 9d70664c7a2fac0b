"""The route that examines the installation of the server."""

from __future__ import annotations

from importlib import import_module

from headwater.http.routes.process_reports import ServerProcesses, all_reports, open_breakers
from headwater.http.routing.route import Route
from headwater.model.health import Examination
from headwater.store.feature_store import FeatureStore


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
