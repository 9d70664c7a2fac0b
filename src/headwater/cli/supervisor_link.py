"""A worker process's link to the `headwater serve` that started it."""

import asyncio
import os
import socket
import threading
import time
from contextlib import suppress

import msgspec

from headwater.core.logging import log
from headwater.engine.worker import Worker
from headwater.http.process_reports import Report, own_metrics

_FORCE_SECONDS = 10.0


def follow_supervisor(descriptor: int, worker: Worker, drain_timeout: float) -> None:
    """Send a report for each request, and stop the worker when the server closes the link or ends.

    This needs a thread: a handler that blocks the event loop must delay neither of them.
    """
    link, loop = socket.socket(fileno=descriptor), asyncio.get_running_loop()

    def follow() -> None:
        # An error means that the server has ended while this process sent a report.
        with suppress(OSError):
            while link.recv(1):
                report = Report(worker.health(), own_metrics())
                link.sendall(msgspec.json.encode(report) + b"\n")
        log.info("stopping with the server", worker=worker.name)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(worker.stop)
        time.sleep(drain_timeout + _FORCE_SECONDS)
        os._exit(os.EX_SOFTWARE)

    threading.Thread(target=follow, name="headwater-supervisor", daemon=True).start()
