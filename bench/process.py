"""Child processes: one measures on request, one serves until it is stopped."""

import http.client
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.case import ContestantFailedError, Effort, Figure, last_line

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".bench"
START_SECONDS = 60.0
STOP_SECONDS = 10.0

Command = Sequence[str | Path]
Ready = Callable[[], bool]

start: Callable[..., Any] = subprocess.Popen
"""How programs are started; tests start them as copies of one that has loaded most modules."""


@contextmanager
def scratch(name: str) -> Iterator[Path]:
    """A folder on the project's disk, so that a durable commit has its real cost."""
    parent = WORK / "data"
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


@contextmanager
def measuring(
    name: str, command: Command, environment: Mapping[str, str] | None = None
) -> Iterator[Callable[[], Figure]]:
    """Run a process that answers each input line with one JSON figure."""
    with (
        _log(name) as log,
        _running(command, environment, log, pipes=True) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        asked, answers = process.stdin, process.stdout

        def measure() -> Figure:
            try:
                asked.write("measure\n")
                asked.flush()
                answer = answers.readline()
            except BrokenPipeError:
                answer = ""
            if not answer:
                raise ContestantFailedError(_last_words(log))
            return msgspec.json.decode(answer, type=Figure)

        try:
            yield measure
        finally:
            with suppress(BrokenPipeError):
                asked.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(STOP_SECONDS)


@contextmanager
def serving(
    name: str,
    command: Command,
    ready: Ready,
    environment: Mapping[str, str] | None = None,
) -> Iterator[int]:
    """Run a server, and yield the id of its process when it is ready."""
    with (
        _log(name) as log,
        _running(command, environment, log, pipes=False) as process,
    ):
        deadline = time.monotonic() + START_SECONDS
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ContestantFailedError(_last_words(log))
            time.sleep(0.05)
        yield process.pid


def status(port: int, path: str, headers: Mapping[str, str]) -> int | None:
    """Return the status of one GET, or None while nothing listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
        try:
            connection.request("GET", path, headers=dict(headers))
            return connection.getresponse().status
        except OSError:
            return None


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def python(*arguments: str | Path) -> list[str | Path]:
    """A command of this environment's Python."""
    return [sys.executable, *arguments]


def child(module: str, name: str, where: str | Path, effort: Effort) -> Command:
    """The command of a process that takes a measure of this package, in a folder or at a URL."""
    given = msgspec.json.encode(effort).decode()
    return python("-m", "bench.child", f"bench.{module}", name, where, given)


@contextmanager
def _log(name: str) -> Iterator[Path]:
    """A file that takes everything the process says, logs included."""
    folder = WORK / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder / f"{name}.log"


@contextmanager
def _running(
    command: Command,
    environment: Mapping[str, str] | None,
    log: Path,
    *,
    pipes: bool,
) -> Iterator[subprocess.Popen[str]]:
    with (
        log.open("w") as said,
        start(
            [str(part) for part in command],
            cwd=ROOT,
            env=inherited() | dict(environment or {}),
            stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
            stdout=subprocess.PIPE if pipes else said,
            stderr=said,
            text=True,
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def finished(
    command: Command, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program until it ends, and return what it has written."""
    with start(
        [str(part) for part in command],
        cwd=ROOT,
        env=inherited() | dict(environment or {}),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        written, said = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, written, said)


def inherited() -> dict[str, str]:
    """Return the environment variables without any Headwater settings."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HEADWATER_", "FABRA_", "REDIS_"))
    }


def _last_words(log: Path) -> str:
    return f"{last_line(log.read_text(errors='replace'))} (see {log.relative_to(ROOT)})"
