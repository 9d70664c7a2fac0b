"""Samples of a running server: memory, descriptors, files and the lag of its event loop."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from soak.probe import Probe

_KILOBYTES = re.compile(r"(RssAnon|RssFile|RssShmem):\s+(\d+) kB")
_PROC = Path("/proc")


class ProcessSample(NamedTuple):
    """The state of one process."""

    anonymous: int
    """Bytes of memory that belong to the process alone."""
    resident: int
    """Bytes in memory, with mapped files and shared memory."""
    descriptors: int


class Sample(NamedTuple):
    """The state of a server, the sum of its processes."""

    seconds: float
    """Since the start of sampling."""
    processes: int
    anonymous: int
    resident: int
    descriptors: int
    wal: int
    """Bytes of the write-ahead logs of the embedded store."""
    loop_lag: float
    """Seconds that ``GET /healthz`` took, which does nothing but wait for the event loop."""


class Sampler:
    """Takes samples of a server until it is stopped."""

    def __init__(self, pid: int, home: Path, probe: Probe, interval: float) -> None:
        self._pid = pid
        self._home = home
        self._probe = probe
        self._interval = interval
        self._began = time.perf_counter()
        self.samples: list[Sample] = []

    async def run(self) -> None:
        """Take samples until this is cancelled."""
        while True:
            self.samples.append(await self._sample())
            await asyncio.sleep(self._interval)

    async def _sample(self) -> Sample:
        lag = await self._probe.seconds()
        found = [process_sample(pid) for pid in process_tree(self._pid)]
        processes = [each for each in found if each is not None]
        return Sample(
            time.perf_counter() - self._began,
            len(processes),
            sum(each.anonymous for each in processes),
            sum(each.resident for each in processes),
            sum(each.descriptors for each in processes),
            sum(_size(path) for path in self._home.rglob("*-wal")),
            lag,
        )


def process_tree(pid: int) -> Iterator[int]:
    """Yield a process and its descendants."""
    yield pid
    with suppress(OSError):  # it ended
        for task in (_PROC / str(pid) / "task").iterdir():
            for child in (task / "children").read_text().split():
                yield from process_tree(int(child))


def process_sample(pid: int) -> ProcessSample | None:
    """Return the state of a process, or None if it has ended."""
    folder = _PROC / str(pid)
    try:
        sizes = dict(_KILOBYTES.findall((folder / "status").read_text()))
        descriptors = sum(1 for _ in (folder / "fd").iterdir())
    except OSError:
        return None
    kilobytes = {name: int(size) for name, size in sizes.items()}
    return ProcessSample(
        kilobytes.get("RssAnon", 0) << 10, sum(kilobytes.values()) << 10, descriptors
    )


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
