"""Reports of a worker that waits for workers of another version of the features file."""

from __future__ import annotations

from headwater.core.logging import log
from headwater.engine.engine import Engine


class WaitingReports:
    """Logs that a worker waits because others declare more features, and that it resumes."""

    def __init__(self) -> None:
        self._only_there: list[str] | None = None

    async def report(
        self, engine: Engine, worker: str, here: frozenset[str], *, is_waiting: bool
    ) -> None:
        """Log it if it has changed."""
        if is_waiting == (self._only_there is not None):
            return
        if not is_waiting:
            log.warning(
                "worker resumes: no others declare more features",
                worker=worker,
                not_run=self._only_there,
            )
            self._only_there = None
            return
        there = await engine.backends.leases.current_set(worker)
        self._only_there = sorted(there - here)
        # A feature that only this worker declares is not run while it waits.
        names = {"only_there": self._only_there, "only_here": sorted(here - there)}
        if names["only_here"]:
            log.warning("worker waits: others declare more features", worker=worker, **names)
        else:
            log.info("worker waits: others declare more features", worker=worker, **names)
