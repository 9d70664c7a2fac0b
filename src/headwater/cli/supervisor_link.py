"""A child process's link to the `headwater serve` that started it."""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from headwater.core.logging import log
from headwater.http.routes.process_reports import Report, own_metrics
from headwater.model.health import Health

# Each message is a line. The supervisor asks for one report, and the child answers with it; a child
# asks for the reports of all, and the supervisor answers with ANSWER and the reports.
ASK_ONE = b"report\n"
ASK_ALL = b"reports\n"
READY = b"ready\n"
ANSWER = b"answer "

_FORCE_SECONDS = 10.0
_REPORTS_SECONDS = 2.0
_LOOP_SECONDS = 0.3
_decode_reports = msgspec.json.Decoder(list[Report]).decode


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
                if line == ASK_ONE:
                    self._send(msgspec.json.encode(Report(health(), own_metrics())) + b"\n")
                else:
                    reports = _decode_reports(line.removeprefix(ANSWER))
                    self._loop.call_soon_threadsafe(self._receive, reports)
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
            self._send(READY)

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
                await asyncio.to_thread(self._send, ASK_ALL)
        await asyncio.wait({self._asked}, timeout=_REPORTS_SECONDS)
        if self._asked.done():
            return self._asked.result()
        problem = Health("supervisor", ok=False, detail="does not answer; see the log")
        return [Report(problem, own_metrics())]
