"""Reports of a worker that waits for workers of another version of the features file."""

from __future__ import annotations

from headwater.core.logging import log
from headwater.declarations.run_set import without_code
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
        ours, theirs = {*map(without_code, here)}, {*map(without_code, there)}
        changed = ours & {without_code(declaration) for declaration in there - here}
        self._only_there = sorted(
            {*theirs - ours, *(f"{declaration} (other code)" for declaration in changed)}
        )
        # A feature that only this worker declares is not run while it waits.
        names = {"only_there": self._only_there, "only_here": sorted(ours - theirs)}
        if names["only_here"]:
            log.warning("worker waits: others declare more features", worker=worker, **names)
        else:
            log.info("worker waits: others declare more features", worker=worker, **names)
