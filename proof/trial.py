"""A world and its evaluations: lived once with its features file, and judged for every edit."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from unittest.mock import patch
from zlib import crc32

from headwater import Settings
from headwater.contexts.evaluation.results import RunFolder
from headwater.model.evaluations import EvaluatedContext
from headwater.ports.runner import Task
from headwater.store.evaluation_run import RunOptions
from headwater.store.loader import load_store
from proof.edits import UNCHANGED, Edit
from proof.judge import Truth
from proof.world import Seen, Step, beginning, live

COHORT = "world"
T = TypeVar("T")


class EvaluationFailedError(Exception):
    """A command that ended in another way than by a result of an evaluation."""


class InThread:
    """Runs tasks one after the other in a thread, which is sooner than processes start."""

    async def slots(self) -> int:
        return 1

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        for task in tasks:
            yield await asyncio.to_thread(task.run)


class Trial:
    """A world in a store of its own, with the cohort of all its contexts."""

    def __init__(self, folder: Path, settings: Settings, steps: Sequence[Step]) -> None:
        self.folder = folder
        self.settings = settings.replace(
            home=folder / "home", partitions=4, eval={"folder": folder / "evals", "portion": 50}
        )
        self.begin: datetime = beginning()
        self.steps = steps
        self.features = UNCHANGED.write(folder / "base")
        Path(self.settings.home).mkdir(exist_ok=True)
        self.seen: Sequence[Seen] = ()

    async def live(self) -> None:
        """Live the world with its features file, and freeze its contexts as a cohort."""
        self.seen = await live(self.features, self.settings, self.begin, self.steps)
        ids = self.folder / "ids.txt"
        ids.write_text("".join(f"{seen.context_id}\n" for seen in self.seen if seen.context_id))
        await self.run("freeze", COHORT, "--file", self.features, "--ids", ids)

    async def live_again(self, edit: Edit, settings: Settings) -> Sequence[Seen]:
        """Live the same history with an edited features file in an empty store."""
        with TemporaryDirectory(prefix="headwater-proof-") as home:
            fresh = settings.replace(home=home, partitions=self.settings.partitions)
            return await live(self.file(edit), fresh, self.begin, self.steps)

    @property
    def settled(self) -> int:
        """The number of the first context after the last change of a document."""
        changes = [n for n, step in enumerate(self.steps) if _changes_documents(step)]
        handled = next(
            n for n in range(changes[-1], len(self.steps)) if self.steps[n].kind == "drain"
        )
        return sum(step.kind == "assemble" for step in self.steps[:handled])

    def file(self, edit: Edit) -> Path:
        """Return the features file with an edit."""
        return edit.write(self.folder / f"edit-{crc32(repr(edit).encode()):08x}")

    async def evaluate(self, edit: Edit) -> Mapping[str, EvaluatedContext]:
        """Evaluate an edited features file in this process; return what is said of each context."""
        file = self.file(edit)
        options = RunOptions(indexes={edit.rebuilt: "2"} if edit.rebuilt else {})
        # The tasks load the file themselves, with the settings of the environment.
        with patch.dict(os.environ, self.environment):
            store = load_store(file)
            try:
                if edit.rebuilt:
                    await store.indexes.reindex(edit.rebuilt)
                report = await store.evaluations.run(
                    COHORT, file=str(file), options=options, runner=InThread()
                )
            finally:
                await store.close()
        folder = RunFolder(self.folder / "evals" / COHORT / report.run.run_id)
        return {said.context_id: said for said in folder.contexts()}

    def results(self, edit: Edit) -> RunFolder:
        """Return the results of the last run of an edit; without changes, of any such."""
        files = (self.folder / "evals" / COHORT).glob("*/run.json")
        runs = [RunFolder(file.parent) for file in files]
        own = [folder for folder in runs if Path(folder.run.file) == self.file(edit)]
        same = [folder for folder in runs if not folder.run.changes]
        return max(own or same, key=lambda folder: folder.run.started_at)

    async def run(self, *words: str | Path) -> str:
        """Run `headwater eval`."""
        return await self.command("eval", *words)

    async def command(self, *words: str | Path) -> str:
        """Run a command; an exit status of 1 says that a gate is broken, and is a result."""
        command = [sys.executable, "-m", "headwater", *map(str, words)]
        ended = await asyncio.to_thread(
            subprocess.run,
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode not in {0, 1}:
            raise EvaluationFailedError(f"{' '.join(command)}\n{ended.stdout}{ended.stderr}")
        return ended.stdout

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands that use the store of the world."""
        settings = self.settings
        own = {
            "HOME": settings.home,
            "PARTITIONS": settings.partitions,
            "EVAL_FOLDER": settings.eval.folder,
            "EVAL_PORTION": settings.eval.portion,
            "REDIS_URL": settings.redis.url,
            "REDIS_PREFIX": settings.redis.prefix,
            "POSTGRES_URL": settings.postgres.url,
            "POSTGRES_SCHEMA": settings.postgres.schema,
        }
        plain = {name: value for name, value in os.environ.items() if "HEADWATER" not in name}
        return plain | {f"HEADWATER_{name}": str(value) for name, value in own.items() if value}


def _changes_documents(step: Step) -> bool:
    return step.kind in {"index", "unindex"} or step.name == "article_saved"


async def truth_of(trial: Trial, edit: Edit, fresh: Callable[[], Settings] | None) -> Truth:
    """Return what an edit does, by lives of the world; without stores, that it does nothing."""
    if fresh is None:
        return Truth(edit, trial.seen, trial.seen)
    after = await trial.live_again(edit, fresh())
    if edit.rebuilt:
        return Truth(edit, trial.seen, after, since=trial.settled)
    alone = [(part, await trial.live_again(part, fresh())) for part in edit.parts]
    return Truth(edit, trial.seen, after, alone)
