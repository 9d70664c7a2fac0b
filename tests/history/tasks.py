"""Tasks that tests send to other processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import msgspec

from headwater.errors import DurationError


class Double(msgspec.Struct, frozen=True):
    """A task with a result."""

    number: int

    def run(self) -> tuple[int, int]:
        return 2 * self.number, os.getpid()


class Fail(msgspec.Struct, frozen=True):
    """A task that raises an error."""

    problem: str

    def run(self) -> tuple[int, int]:
        raise DurationError(self.problem) if self.problem else ValueError("unexpected")


class DieUntil(msgspec.Struct, frozen=True):
    """A task whose process is killed, except if the folder has so many files."""

    folder: Path
    files: int

    def run(self) -> tuple[int, int]:
        number = len(list(self.folder.iterdir()))
        if number < self.files:
            (self.folder / str(number)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number, os.getpid()


class Hang(msgspec.Struct, frozen=True):
    """A task that never ends; the file has the id of its process."""

    file: Path

    def run(self) -> tuple[int, int]:
        self.file.write_text(str(os.getpid()))
        while True:
            time.sleep(3600)
