"""A worker process's link to the `headwater serve` that started it."""

import os
import signal
import socket
import threading
import time

import msgspec

from headwater.core.logging import log
from headwater.engine.worker import Worker
from headwater.http.process_reports import Report, own_metrics

_FORCE_SECONDS = 10.0


def follow_supervisor(descriptor: int, worker: Worker, drain_timeout: float) -> None:
    """Send a report for each request, and stop this process when the server has ended.

    This needs a thread: a handler that blocks the event loop must delay neither of them.
    """
    link = socket.socket(fileno=descriptor)
    threading.Thread(
        target=_follow, args=(link, worker, drain_timeout), name="headwater-supervisor", daemon=True
    ).start()


def _follow(link: socket.socket, worker: Worker, drain_timeout: float) -> None:
    try:
        while link.recv(1):
            report = Report(worker.health(), own_metrics())
            link.sendall(msgspec.json.encode(report) + b"\n")
    except OSError as error:
        log.warning("link to the server failed", error=str(error))
    log.warning("server ended; stopping", worker=worker.name)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(drain_timeout + _FORCE_SECONDS)
    os._exit(os.EX_SOFTWARE)
