"""A world and its evaluations: lived once with its features file, and judged for every edit."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from zlib import crc32

from headwater import Settings
from headwater.contexts.evaluation.results import RunFolder
from headwater.model.evaluations import EvaluatedContext
from proof.edits import UNCHANGED, Edit
from proof.world import Seen, Step, beginning, history, live

COHORT = "world"


class EvaluationFailedError(Exception):
    """A command that ended in another way than by a result of an evaluation."""


class Trial:
    """A world in a store of its own, with the cohort of all its contexts."""

    def __init__(self, folder: Path, settings: Settings, seed: int, contexts: int) -> None:
        self.folder = folder
        self.settings = settings.replace(home=folder / "home", partitions=4)
        self.begin: datetime = beginning()
        self.steps: Sequence[Step] = history(seed, contexts)
        self.features = UNCHANGED.write(folder / "base")
        self.seen: Sequence[Seen] = ()

    async def live(self) -> None:
        """Live the world with its features file, and freeze its contexts as a cohort."""
        self.seen = await live(self.features, self.settings, self.begin, self.steps)
        ids = self.folder / "ids.txt"
        ids.write_text("".join(f"{seen.context_id}\n" for seen in self.seen if seen.context_id))
        await self.run("freeze", COHORT, "--file", self.features, "--ids", ids)

    async def live_again(self, edit: Edit, settings: Settings) -> Sequence[Seen]:
        """Live the same history with an edited features file in an empty store."""
        return await live(self.file(edit), settings, self.begin, self.steps)

    def file(self, edit: Edit) -> Path:
        """Return the features file with an edit."""
        return edit.write(self.folder / f"edit-{crc32(repr(edit).encode()):08x}")

    async def evaluate(self, edit: Edit, *options: str) -> Mapping[str, EvaluatedContext]:
        """Evaluate an edited features file; return what is said of each context."""
        before = set(self._runs())
        file = self.file(edit)
        await self.run("run", COHORT, "--file", file, *edit.options, *options)
        (path,) = set(self._runs()) - before
        return {said.context_id: said for said in RunFolder(path).contexts()}

    def _runs(self) -> list[Path]:
        return [file.parent for file in (self.folder / "evals" / COHORT).glob("*/report.json")]

    async def run(self, *words: str | Path) -> str:
        """Run `headwater eval`; an exit status of 1 says that a gate is broken, and is a result."""
        command = [sys.executable, "-m", "headwater", "eval", *map(str, words)]
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
            "EVAL_FOLDER": self.folder / "evals",
            "REDIS_URL": settings.redis.url,
            "REDIS_PREFIX": settings.redis.prefix,
            "POSTGRES_URL": settings.postgres.url,
            "POSTGRES_SCHEMA": settings.postgres.schema,
        }
        plain = {name: value for name, value in os.environ.items() if "HEADWATER" not in name}
        return plain | {f"HEADWATER_{name}": str(value) for name, value in own.items() if value}
