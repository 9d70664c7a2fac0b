"""The worker processes that `headwater serve` starts, restarts and stops."""

import asyncio
import signal
import socket
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from prometheus_client import Counter

from headwater.core.logging import log
from headwater.http.process_reports import Report
from headwater.ports import Health

RESTARTS = Counter(
    "headwater_worker_restarts_total", "Worker processes that ended and were started again."
)

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_ABORT_SECONDS = 2.0
_REPORT_SECONDS = 0.5
_MAX_REPORT_BYTES = 64 << 20
_decode_report = msgspec.json.Decoder(Report).decode


def worker_command(file: Path) -> list[str]:
    """Return the command of a worker process, to which the descriptor of its link is added."""
    return [sys.executable, "-m", "headwater", "worker", str(file), "--supervisor"]


class SupervisedWorkers:
    """A fixed number of worker processes, each of which is started again when it ends."""

    def __init__(self, command: Sequence[str], count: int) -> None:
        self._workers = {
            str(number): _SupervisedWorker(command, f"worker {number}")
            for number in range(1, count + 1)
        }

    async def run(self) -> None:
        """Keep the processes running until stopped, then wait for their end."""
        async with asyncio.TaskGroup() as group:
            for worker in self._workers.values():
                group.create_task(worker.run())

    def stop(self) -> None:
        """Ask the processes to finish their running batches and to exit."""
        for worker in self._workers.values():
            worker.stop()

    async def reports(self) -> Mapping[str, Report]:
        """Return the report of each process by its number, soon even if a process hangs."""
        reports = await asyncio.gather(*(worker.report() for worker in self._workers.values()))
        return dict(zip(self._workers, reports, strict=True))


class _Link:
    """The socket over which a worker process is asked for its report.

    The process sends one line for each byte that it receives. It stops when the socket is closed,
    which the kernel does if this process is killed.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def report(self) -> Report:
        """Return the report; raise OSError or ValueError if the process ends meanwhile."""
        self._writer.write(b"\n")
        return _decode_report(await self._reader.readline())

    def close(self) -> None:
        self._writer.close()


class _SupervisedWorker:
    """One worker process after the other."""

    def __init__(self, command: Sequence[str], name: str) -> None:
        self._command = command
        self._name = name
        self._process: Process | None = None
        self._link: _Link | None = None
        self._report: asyncio.Task[Report] | None = None
        self._stopping = asyncio.Event()
        self._pause = _FIRST_PAUSE

    async def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            status = await self._run_once()
            if not self._stopping.is_set():
                await self._wait_for_restart(status, time.monotonic() - began)

    async def _wait_for_restart(self, status: str | int, seconds: float) -> None:
        """Wait twice as long after each process that ended soon after its start."""
        if seconds > _LONGEST_PAUSE:
            self._pause = _FIRST_PAUSE
        log.error(
            "worker process ended; restarting",
            worker=self._name,
            exit_status=status,
            after_seconds=round(seconds, 1),
            pause_seconds=self._pause,
        )
        RESTARTS.inc()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._stopping.wait()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def stop(self) -> None:
        # Not by a signal: systemd signals all processes of a service, and a second signal would
        # end a worker without waiting for its batches.
        self._stopping.set()
        self._close_link()

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _run_once(self) -> str | int:
        """Run one process until it ends; return its exit code or the signal that ended it."""
        try:
            process = await self._start()
            if self._stopping.is_set():
                self._close_link()
            return _status(await self._wait(process))
        except OSError as error:
            return f"could not be started: {error.strerror}"
        finally:
            self._process = None
            self._close_link()

    async def _start(self) -> Process:
        ours, theirs = socket.socketpair()
        with theirs:
            streams = await asyncio.open_connection(sock=ours, limit=_MAX_REPORT_BYTES)
            self._link = _Link(*streams)
            # In a separate session Ctrl-C does not reach the worker, which this process stops.
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        return self._process

    async def _wait(self, process: Process) -> int:
        try:
            return await process.wait()
        except asyncio.CancelledError:
            # Two signals end a worker at once.
            for number in (signal.SIGINT, signal.SIGTERM):
                with suppress(ProcessLookupError):
                    process.send_signal(number)
            try:
                async with asyncio.timeout(_ABORT_SECONDS):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
            raise

    async def report(self) -> Report:
        """Return the report of the process, or that it does not answer in time."""
        if self._report is None or self._report.done():
            self._report = asyncio.create_task(self._request_report())
        await asyncio.wait({self._report}, timeout=_REPORT_SECONDS)
        if not self._report.done():
            return self._failed("does not answer: it is starting, or hangs")
        return self._report.result()

    async def _request_report(self) -> Report:
        if self._process is None or self._link is None:
            return self._failed("is not running and will be started again")
        try:
            report = await self._link.report()
        except (OSError, ValueError):
            return self._failed("has just ended and will be started again")
        health = msgspec.structs.replace(report.health, name=self._name, needed=False)
        return msgspec.structs.replace(report, health=health)

    def _failed(self, problem: str) -> Report:
        detail = f"the process {problem}; see the log"
        return Report(Health(self._name, ok=False, detail=detail, needed=False))


def _status(code: int) -> str | int:
    return signal.Signals(-code).name if code < 0 else code
