"""Tasks that the suite of runners sends to other processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headwater.errors import DurationError

Doubled = tuple[int, int]
"""A number and the id of the process that doubled it."""


class _Task(msgspec.Struct, frozen=True):
    @property
    def inputs(self) -> Sequence[Path]:
        return ()

    def run(self) -> Doubled:
        raise NotImplementedError


class Double(_Task, frozen=True):
    """A task with a result."""

    number: int

    def run(self) -> Doubled:
        return 2 * self.number, os.getpid()


class Fail(_Task, frozen=True):
    """A task that raises an error."""

    problem: str

    def run(self) -> Doubled:
        raise DurationError(self.problem) if self.problem else ValueError("unexpected")


class Read(_Task, frozen=True):
    """A task that reads a file."""

    file: Path

    @property
    def inputs(self) -> Sequence[Path]:
        return (self.file,)

    def run(self) -> Doubled:
        return len(self.file.read_bytes()), os.getpid()


class DieUntil(_Task, frozen=True):
    """A task whose process is killed, except if the folder has so many files."""

    folder: Path
    files: int

    def run(self) -> Doubled:
        number = len(list(self.folder.iterdir()))
        if number < self.files:
            (self.folder / str(number)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, os.getpid()


class Hang(_Task, frozen=True):
    """A task that never ends; the file has the id of its process."""

    file: Path

    def run(self) -> Doubled:
        unfinished = self.file.with_suffix(".unfinished")
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(self.file)
        while True:
            time.sleep(3600)


class HangOnce(Hang, frozen=True):
    """A task that never ends the first time it is run."""

    def run(self) -> Doubled:
        return (0, os.getpid()) if self.file.exists() else super().run()


class Nap(_Task, frozen=True):
    """A task that takes some time, in which the file has the id of its process."""

    file: Path

    def run(self) -> Doubled:
        self.file.write_text(str(os.getpid()))
        time.sleep(0.1)
        self.file.write_text("")
        return 0, os.getpid()
