"""Counts what one operation makes the process do, on all of its threads."""

import gc
import sys
import threading
import tracemalloc
from pathlib import Path
from types import FrameType
from typing import Any

from dev.work.operations import Operation

Counts = dict[str, float]

WARM_UP = 3
READS_OF_COUNTS = 2
PEAKS = 3


class CallCounter:
    """Counts the calls of Python functions and of built-in ones, while it is on."""

    def __init__(self) -> None:
        self.calls = self.builtin_calls = 0
        self.is_on = False

    def install(self) -> None:
        """Watch this thread, and those that are started from now on."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.is_on:
            if event == "call":
                self.calls += 1
            elif event == "c_call":
                self.builtin_calls += 1


async def count(operation: Operation, calls: CallCounter) -> Counts:
    """Return what the operation takes once, at the least."""
    for _ in range(WARM_UP):
        await _perform(operation)
    taken = [await _count_once(operation, calls) for _ in range(operation.repetitions)]
    least = {name: min(counts[name] for counts in taken) for name in taken[0]}
    least["peak_bytes"] = min([await _peak_bytes(operation) for _ in range(PEAKS)])
    return {name: round(number / operation.times, 1) for name, number in least.items()}


async def _count_once(operation: Operation, calls: CallCounter) -> Counts:
    gc.collect()
    if operation.before:
        await operation.before()
    calls.calls = calls.builtin_calls = 0
    before = _transfers()
    calls.is_on = True
    await operation.run()
    calls.is_on = False
    after = _transfers()
    return {
        "calls": calls.calls,
        "builtin_calls": calls.builtin_calls,
        "reads": after["syscr"] - before["syscr"] - READS_OF_COUNTS,
        "writes": after["syscw"] - before["syscw"],
        "bytes_written": after["wchar"] - before["wchar"],
    }


async def _peak_bytes(operation: Operation) -> int:
    """Return how many bytes the operation has allocated at once, beyond those of before."""
    if operation.before:
        await operation.before()
    tracemalloc.start()
    await operation.run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


async def _perform(operation: Operation) -> None:
    if operation.before:
        await operation.before()
    await operation.run()


def _transfers() -> dict[str, int]:
    """Return what the kernel has counted: system calls that read or write, and their bytes."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return {name: int(number) for name, _, number in (line.partition(": ") for line in lines)}
