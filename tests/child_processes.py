"""The child processes of a test run: how they begin, and whether one outlives the run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

# `nohup` ignores the first, and a shell without job control the others of a command with `&`.
INHERITED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT)

# Descendants inherit it, also those whose parent has ended.
MARK = "PYTEST_RUN_OF_PROCESS"

ENDED_WITHIN_SECONDS = 10.0
POLL_SECONDS = 0.02


class Survivor(NamedTuple):
    """A process that a test started and did not end."""

    pid: int
    command: str
    test: str


class SurvivingProcessesError(Exception):
    """Tests left processes behind, which were killed at the end of the run."""

    def __init__(self, survivors: list[Survivor]) -> None:
        lines = [f"{each.pid}: {each.command}, started by {each.test}" for each in survivors]
        super().__init__("these processes were not ended by their tests:\n" + "\n".join(lines))


@contextmanager
def default_signals() -> Iterator[None]:
    """Let no child process ignore signals because this process was started so.

    A handler becomes the default action when a program is executed; "ignored" would stay.
    """
    ignored = [each for each in INHERITED if signal.getsignal(each) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        for number in ignored:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def no_survivors(within: float = ENDED_WITHIN_SECONDS) -> Iterator[None]:
    """Kill the processes that the block started and did not end, and raise an error for them."""
    mark, previous = uuid4().hex, os.environ.get(MARK)
    os.environ[MARK] = mark
    try:
        yield
    finally:
        del os.environ[MARK]
        if previous:
            os.environ[MARK] = previous
    if survivors := _survivors(mark, within):
        for each in survivors:
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        raise SurvivingProcessesError(survivors)


def _survivors(mark: str, within: float) -> list[Survivor]:
    deadline = time.monotonic() + within
    while (survivors := list(_marked(mark))) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return survivors


def _marked(mark: str) -> Iterator[Survivor]:
    for folder in Path("/proc").glob("[0-9]*"):
        # Others' processes cannot be read, and some end meanwhile.
        with suppress(PermissionError, FileNotFoundError, ProcessLookupError):
            variables = _variables(folder)
            if variables.get(MARK) == mark:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
                test = variables.get("PYTEST_CURRENT_TEST", "an unknown test")
                yield Survivor(int(folder.name), command, test)


def _variables(folder: Path) -> Mapping[str, str]:
    entries = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def is_running(pid: int) -> bool:
    """Return whether the process has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")
