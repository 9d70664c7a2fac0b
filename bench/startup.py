"""Start-up times as contestants: a fresh process, from its start to its end."""

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.case import Contestant, ContestantFailedError, Effort, Figure, Measure, last_line

HEADWATER = Path(sys.executable).with_name("headwater")


def seconds_of(*command: str | Path) -> Contestant:
    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        runs = effort.of(3, 3, 1)
        yield lambda: Figure(min(_seconds(command) for _ in range(runs)))

    return contestant


def _seconds(command: Sequence[str | Path]) -> float:
    start = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as missing:
        raise ContestantFailedError(f"{missing.filename} is not there") from missing
    elapsed = time.perf_counter() - start
    if done.returncode:
        raise ContestantFailedError(last_line(done.stderr))
    return elapsed
