"""The clock of a worker that a fault sets forward and back while the worker runs."""

from __future__ import annotations

import mmap
import os
import struct
from datetime import datetime, timedelta
from pathlib import Path

from headwater.core.clock import Clock, SystemClock

VARIABLE = "CHAOS_CLOCK"
_SECONDS = struct.Struct("<q")


class SteppedClock(SystemClock):
    """The system clock plus the seconds in a file; only its wall clock is stepped."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as opened:
            self._seconds = mmap.mmap(opened.fileno(), _SECONDS.size, access=mmap.ACCESS_READ)

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._ahead())

    def micros(self) -> int:
        return super().micros() + self._ahead() * 1_000_000

    def _ahead(self) -> int:
        ahead: int = _SECONDS.unpack(self._seconds[:])[0]
        return ahead


def clock_of_this_process() -> Clock:
    """Return the clock of the file that the environment names, or the system clock."""
    file = os.environ.get(VARIABLE)
    return SteppedClock(Path(file)) if file else SystemClock()


def step(file: Path, seconds: int) -> None:
    """Set a clock forward by so many seconds, compared with the system's; below zero, back."""
    file.touch()
    with file.open("r+b") as opened:
        opened.write(_SECONDS.pack(seconds))
