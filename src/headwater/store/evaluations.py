"""The evaluations of a store: cohorts of recorded contexts, and runs of them."""

from __future__ import annotations

from pathlib import Path

from headwater.contexts.evaluation.results import RunFolder
from headwater.store.runtime import Runtime


class Evaluations:
    """The cohorts and runs in the folder of evaluations."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    @property
    def folder(self) -> Path:
        """The folder of cohorts and runs."""
        return Path(self._runtime.settings.eval.folder)

    def cohort(self, name: str) -> Path:
        """Return the file of a cohort."""
        return self.folder / f"{name}.cohort"

    def run_folder(self, name: str, run_id: str) -> RunFolder:
        """Return the folder of a run of a cohort."""
        return RunFolder(self.folder / name / run_id)
