"""Processes that run until a signal arrives, and the children that `headwater serve` supervises."""

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
import threading
import time
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from prometheus_client import Counter

from headwater.access.guard import check_address
from headwater.core.logging import log
from headwater.core.tls import ServedCertificate
from headwater.errors import HeadwaterError, TooManyHungThreadsError
from headwater.http.routes.process_reports import Family, Report, add_up, own_metrics
from headwater.http.routing.mounts import AsgiMount
from headwater.http.server.processes import announce_address, serve, supervise
from headwater.http.server.web_server import reserve_port
from headwater.model.health import Health
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

T = TypeVar("T")
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
_ABORT_SECONDS = 2.0
_REPORT_SECONDS = 0.5
_MAX_LINE_BYTES = 64 << 20
# Each message of a link is a line. The supervisor asks for one report, and the child answers with
# it; a child asks for the reports of all, and the supervisor answers with them.
_ASK_ONE = b"report\n"
_ASK_ALL = b"reports\n"
_READY = b"ready\n"
_FORCE_SECONDS = 10.0
_REPORTS_SECONDS = 2.0
_LOOP_SECONDS = 0.3
_decode_report = msgspec.json.Decoder(Report).decode
_decode_reports = msgspec.json.Decoder(list[Report]).decode
WORKER_RESTARTS = Counter(
    "headwater_worker_restarts_total",
    "Worker processes of `headwater serve` that ended and were started again.",
)
API_RESTARTS = Counter(
    "headwater_api_restarts_total",
    "API processes of `headwater serve --processes N` that ended and were started again.",
)


def run_long(main: Coroutine[Any, Any, T]) -> T:
    """Run a server or a worker until it ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse the limit that they report
        # As many files and sockets as the system allows.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with long_runner() as runner:
        try:
            return runner.run(main)
        except TooManyHungThreadsError as error:
            log.error("worker exits: too many hung threads", error=str(error))
            log.flush()
            sys.exit(os.EX_SOFTWARE)


def long_runner() -> asyncio.Runner:
    """Return a runner for a long process: on uvloop if installed, with rare collections."""
    # Loaded modules live forever and the objects of an event die young. Collecting after every few
    # hundred objects would take a tenth of a worker's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    return asyncio.Runner(
        loop_factory=import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    )


class ProcessKind(NamedTuple):
    """Child processes that run the same command."""

    name: str
    """Also the label of their gauges, whose value is the number of the process."""
    arguments: Sequence[str]
    """Of the command line, to which the descriptor of the link is added."""
    processes: int
    restarts: Counter
    reports_ready: bool = False
    """Whether a process reports that it has started; one that ends before is not restarted."""


class ProcessStartError(HeadwaterError):
    """A child process that ended before it was ready."""

    def __init__(self, name: str, status: str | int) -> None:
        super().__init__(f"process {name!r} ended with {status} while it started; see its error")


class ChildProcesses:
    """A fixed number of processes, each of which is started again when it ends."""

    def __init__(
        self, kinds: Sequence[ProcessKind], *, on_ready: Callable[[], None] = lambda: None
    ) -> None:
        self._kinds = kinds
        self._on_ready = on_ready
        self._children = [
            _ChildProcess(kind, number, self._answer, self._count_ready)
            for kind in kinds
            for number in range(1, kind.processes + 1)
        ]
        self._starting = sum(kind.processes for kind in kinds if kind.reports_ready)

    async def run(self) -> None:
        """Keep the processes running until stopped, then wait for their end."""
        try:
            async with asyncio.TaskGroup() as group:
                for child in self._children:
                    group.create_task(child.run())
        except* ProcessStartError as failed:
            raise failed.exceptions[0] from None

    def stop(self) -> None:
        """Ask the processes to finish their running work and to exit."""
        for child in self._children:
            child.stop()

    async def reports(self) -> Sequence[Report]:
        """Return the reports of this process and of its children, soon even if one hangs."""
        return [Report(metrics=own_metrics()), *await self._child_reports()]

    async def _child_reports(self) -> Sequence[Report]:
        return await asyncio.gather(*(child.report() for child in self._children))

    async def _answer(self) -> bytes:
        """Return the reports of all children, and the restarts, to a child that asks."""
        restarts = [metric for kind in self._kinds for metric in own_metrics(kind.restarts)]
        return msgspec.json.encode([Report(metrics=restarts), *await self._child_reports()])

    def _count_ready(self) -> None:
        self._starting -= 1
        if not self._starting:
            self._on_ready()


class _ChildProcess:
    """One process after the other, each connected by a socket pair.

    A process stops when the socket is closed, which the kernel does if this process is killed.
    """

    def __init__(
        self,
        kind: ProcessKind,
        number: int,
        answer: Callable[[], Awaitable[bytes]],
        on_ready: Callable[[], None],
    ) -> None:
        self._kind = kind
        self._name = f"{kind.name} {number}"
        self._labels = {kind.name: str(number)}
        self._answer = answer
        self._on_ready = on_ready
        self._is_ready = not kind.reports_ready
        self._link: asyncio.StreamWriter | None = None
        self._reports: asyncio.Queue[Report | None] = asyncio.Queue()
        """Those of the process that runs now; None when it has ended."""
        self._report: asyncio.Task[Report] | None = None
        self._counts: list[Family] = []
        """Those of the process that runs now, as it last reported them."""
        self._former_counts: list[Family] = []
        """The sums over all processes that have ended: a count of the server never falls."""
        self._stopping = asyncio.Event()
        self._pause = _FIRST_PAUSE

    async def run(self) -> None:
        while not self._stopping.is_set():
            began = time.monotonic()
            status = await self._run_once()
            if not self._stopping.is_set():
                if not self._is_ready:
                    raise ProcessStartError(self._name, status)
                await self._wait_for_restart(status, time.monotonic() - began)

    async def _wait_for_restart(self, status: str | int, seconds: float) -> None:
        """Wait twice as long after each process that ended soon after its start."""
        if seconds > _LONGEST_PAUSE:
            self._pause = _FIRST_PAUSE
        log.error(
            "process ended; restarting",
            child=self._name,
            exit_status=status,
            after_seconds=round(seconds, 1),
            pause_seconds=self._pause,
        )
        self._kind.restarts.inc()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._pause):
                await self._stopping.wait()
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)

    def stop(self) -> None:
        # Not by a signal: systemd signals all processes of a service, and a second signal would
        # end a process without waiting for its work.
        self._stopping.set()
        self._close_link()

    def _close_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    async def _run_once(self) -> str | int:
        """Run one process until it ends; return its exit code or the signal that ended it."""
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                reader, link = await asyncio.open_connection(sock=ours, limit=_MAX_LINE_BYTES)
                self._link, self._reports = link, asyncio.Queue()
                # In a separate session Ctrl-C does not reach the child, which this process stops.
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", "headwater", *self._kind.arguments),
                    *("--supervisor", str(theirs.fileno())),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
            if self._stopping.is_set():
                self._close_link()
            listening = asyncio.create_task(self._listen(reader, link, self._reports))
            try:
                code = await _ended(process)
                return signal.Signals(-code).name if code < 0 else code
            finally:
                self._close_link()
                await listening
        except OSError as error:
            return f"could not be started: {error.strerror}"
        finally:
            self._close_link()
            self._former_counts = add_up([*self._former_counts, *self._counts])
            self._counts = []

    async def _listen(
        self,
        reader: asyncio.StreamReader,
        link: asyncio.StreamWriter,
        reports: asyncio.Queue[Report | None],
    ) -> None:
        """Receive reports and answer questions until the child ends."""

        async def send_all() -> None:
            link.write(await self._answer() + b"\n")

        async with asyncio.TaskGroup() as answering:
            with suppress(OSError, ValueError):
                while line := await reader.readline():
                    if line == _ASK_ALL:
                        answering.create_task(send_all())
                    elif line != _READY:
                        report = _decode_report(line)
                        self._counts = [family for family in report.metrics if family.is_summed]
                        reports.put_nowait(report)
                    elif not self._is_ready and not self._stopping.is_set():
                        self._is_ready = True
                        self._on_ready()
        reports.put_nowait(None)

    async def report(self) -> Report:
        """Return the report of the process, or that it does not answer in time."""
        if self._report is None or self._report.done():
            self._report = asyncio.create_task(self._request_report())
        await asyncio.wait({self._report}, timeout=_REPORT_SECONDS)
        if self._report.done():
            report = self._report.result()
        else:
            report = self._failed("does not answer: it is starting, or hangs")
        others = [family for family in report.metrics if not family.is_summed]
        counts = [*self._counts, *self._former_counts]
        return msgspec.structs.replace(report, metrics=[*others, *counts])

    async def _request_report(self) -> Report:
        if self._link is None:
            return self._failed("is not running and will be started again")
        self._link.write(_ASK_ONE)
        report = await self._reports.get()
        if report is None or report.health is None:
            return self._failed("has just ended and will be started again")
        health = msgspec.structs.replace(report.health, name=self._name, needed=False)
        return msgspec.structs.replace(report, health=health, labels=self._labels)

    def _failed(self, problem: str) -> Report:
        detail = f"the process {problem}; see the log"
        return Report(Health(self._name, ok=False, detail=detail, needed=False))


async def _ended(process: Process) -> int:
    """Wait for the end of a process, and end it if this task is cancelled."""
    try:
        return await process.wait()
    except asyncio.CancelledError:
        # Two signals end a process at once.
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


class SupervisorLink:
    """The reports of this process for the supervisor, and of all processes from it.

    A thread follows the link: a function that blocks the event loop must delay neither a report nor
    the end of this process when the supervisor ends.
    """

    def __init__(self, descriptor: int, drain_timeout: float) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._sending = threading.Lock()
        self._loop = asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._asked: asyncio.Future[Sequence[Report]] | None = None
        self._force_seconds = drain_timeout + _FORCE_SECONDS

    def follow(self, health: Callable[[], Health], stop: Callable[[], None]) -> None:
        """Report the health when asked, and stop when the supervisor closes the link or ends."""
        thread = threading.Thread(
            target=self._follow, args=(health, stop), name="headwater-supervisor", daemon=True
        )
        thread.start()

    def _follow(self, health: Callable[[], Health], stop: Callable[[], None]) -> None:
        # An error means that the supervisor has ended while this process sent a report.
        with suppress(OSError), self._socket.makefile("rb") as lines:
            for line in lines:
                if line == _ASK_ONE:
                    self._send(msgspec.json.encode(Report(health(), own_metrics())) + b"\n")
                else:
                    self._loop.call_soon_threadsafe(self._receive, _decode_reports(line))
        log.info("stopping with the server")
        with suppress(RuntimeError):  # the loop has ended meanwhile
            self._loop.call_soon_threadsafe(stop)
        time.sleep(self._force_seconds)
        os._exit(os.EX_SOFTWARE)

    def _send(self, line: bytes) -> None:
        with self._sending:
            self._socket.sendall(line)

    def _receive(self, reports: Sequence[Report]) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(reports)

    def serve(self) -> None:
        """Follow the link of an API process, whose health is that of its event loop."""
        self.follow(self._loop_health, self.stop)

    def _loop_health(self) -> Health:
        answered = threading.Event()
        self._loop.call_soon_threadsafe(answered.set)
        if answered.wait(_LOOP_SECONDS):
            return Health("api", ok=True)
        return Health("api", ok=False, detail="a function blocks the event loop; see the log")

    def report_ready(self) -> None:
        """Report that this process accepts requests."""
        with suppress(OSError):
            self._send(_READY)

    async def run(self) -> None:
        """Wait until the supervisor, or this process, stops."""
        await self._ended.wait()

    def stop(self) -> None:
        """End ``run``."""
        self._ended.set()

    async def reports(self) -> Sequence[Report]:
        """Return the reports of all processes, or only this one's if the supervisor hangs."""
        if self._asked is None or self._asked.done():
            self._asked = self._loop.create_future()
            with suppress(OSError):
                # Not in the loop: the thread may be sending a long report.
                await asyncio.to_thread(self._send, _ASK_ALL)
        await asyncio.wait({self._asked}, timeout=_REPORTS_SECONDS)
        if self._asked.done():
            return self._asked.result()
        problem = Health("supervisor", ok=False, detail="does not answer; see the log")
        # Without counts: those of this process alone would look as if all had begun anew.
        return [Report(problem, [family for family in own_metrics() if not family.is_summed])]


def worker_processes(file: Path, count: int) -> ProcessKind:
    """Return the worker processes of a features file."""
    return ProcessKind("worker", ["worker", str(file)], count, WORKER_RESTARTS)


async def serve_with_processes(
    settings: Settings,
    file: Path,
    address: tuple[str, int],
    processes: int,
    workers: int,
    on_ready: Callable[[str], None],
    tls: Sequence[str] = (),
) -> None:
    """Supervise API processes and workers until a stop signal; serve nothing in this process.

    This process keeps the port reserved, and each API process listens on it, so that the kernel
    distributes the connections; on one socket, a process would accept all that arrive together.
    """
    host, port = address
    check_address(settings, host)
    with reserve_port(host, port) as reserved:
        command = ["serve", str(file), "--host", host, "--port", str(reserved.getsockname()[1])]
        if tls:
            ServedCertificate(*tls)  # an error here names it once
            command += [f"--tls-cert={tls[0]}", f"--tls-key={tls[1]}"]
        api = ProcessKind(
            "api",
            command,
            processes,
            API_RESTARTS,
            reports_ready=True,
        )
        children = ChildProcesses(
            [api, worker_processes(file, workers)],
            on_ready=partial(announce_address, host, reserved, on_ready, is_secure=bool(tls)),
        )
        await supervise(children, settings.worker.drain_timeout)


async def serve_supervised(
    store: FeatureStore,
    address: tuple[str, int],
    mounts: Sequence[AsgiMount],
    supervisor: int,
    tls: Sequence[str] = (),
) -> None:
    """Serve in a process that `headwater serve --processes N` has started."""
    link = SupervisorLink(supervisor, store.settings.worker.drain_timeout)
    link.serve()
    await serve(
        store,
        host=address[0],
        port=address[1],
        worker=False,
        processes=link,
        mounts=mounts,
        on_ready=lambda _: link.report_ready(),
        shares_port=True,
        tls=tls,
    )
