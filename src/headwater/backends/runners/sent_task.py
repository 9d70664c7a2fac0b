"""A task as another process is sent it, and what that process answers."""

from __future__ import annotations

import pickle
import platform
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from contextlib import chdir, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from headwater.core.session_memory import limit_session_memory, session_memory
from headwater.errors import ConfigError, HeadwaterError, TaskFailedError
from headwater.ports import Task


class TaskAnswer(msgspec.Struct, frozen=True):
    """The result of a task, or its error."""

    value: Any = None
    error: str | None = None
    trace: str = ""

    def result(self) -> Any:
        """Return the result; raise TaskFailedError with the text of the task's error."""
        if self.error is not None:
            raise TaskFailedError(self.error, self.trace)
        return self.value


class SentTask(msgspec.Struct, frozen=True):
    """A task, and what the process that runs it must know of the one that sent it."""

    name: str
    task: bytes
    sizes: Mapping[Path, int]
    """The files that the task reads."""
    folder: Path
    path: Sequence[str]
    session_bytes: int

    @classmethod
    def of(cls, tasks: Iterable[Task[Any]]) -> list[SentTask]:
        """Return tasks as this process sends them."""
        return [
            cls(
                repr(task),
                pickle.dumps(task),
                # A file that is gone already is the task's error.
                {file: file.stat().st_size for file in task.inputs if file.exists()},
                Path.cwd(),
                [*sys.path],
                session_memory(),
            )
            for task in tasks
        ]

    def run(self) -> TaskAnswer:
        """Run the task in the folder that its sender works in, if this node has it."""
        try:
            with chdir(self.folder) if self.folder.is_dir() else nullcontext():
                self._enter()
                return TaskAnswer(pickle.loads(self.task).run())
        except HeadwaterError as error:
            return TaskAnswer(error=str(error), trace=traceback.format_exc())
        except Exception as error:  # noqa: BLE001 - raised again in the other process
            text = f"{type(error).__name__}: {error}"
            return TaskAnswer(error=text, trace=traceback.format_exc())

    def _enter(self) -> None:
        """Find modules and files as the sender does; raise ConfigError if a file is not here."""
        sys.path[:] = [*self.path, *(place for place in sys.path if place not in self.path)]
        limit_session_memory(self.session_bytes)
        for file, size in self.sizes.items():
            if not file.is_file() or file.stat().st_size != size:
                raise ConfigError(
                    f"{platform.node()} does not see {file.absolute()} as the process that sends "
                    "tasks does; put the home, runner.folder, backfill.folder, eval.folder and "
                    "exports on a file system that all nodes mount at the same place"
                )

    def lost(self, reason: str) -> TaskFailedError:
        """Return the error of a task whose processes died."""
        return TaskFailedError(
            f"the process that ran {self.name} ended each time it was started, the last time with "
            f"{reason}; SIGKILL often means that memory ran out: run fewer tasks at once"
        )
