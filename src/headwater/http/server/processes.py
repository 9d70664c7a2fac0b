"""Server processes: the API with or without a worker, or the probes of a worker."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Protocol

from headwater.access.guard import check_address
from headwater.core.deadlines import force_exit_after
from headwater.core.logging import log
from headwater.core.tls import ServedCertificate
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker.watchdog import Watchdog
from headwater.engine.worker.worker import Worker
from headwater.http.app import App, create_app, create_mounts_app, create_worker_app
from headwater.http.routes.process_reports import ServerProcesses
from headwater.http.routing.mounts import AsgiMount
from headwater.http.server.web_server import WebServer, listen
from headwater.store.feature_store import FeatureStore

_FORCE_SECONDS = 5.0
_ABORT_TICKS = 20
_TICK_SECONDS = 0.1
_END = 0
_QUIET_STOP_SECONDS = 0.6


class RunsWorker(Protocol):
    """A worker in this process, or worker processes."""

    async def run(self) -> None: ...

    def stop(self) -> None: ...


async def serve(
    store: FeatureStore,
    *,
    host: str,
    port: int,
    worker: bool = True,
    processes: ServerProcesses | None = None,
    mounts: Sequence[AsgiMount] = (),
    on_ready: Callable[[str], None] | None = None,
    shares_port: bool = False,
    tls: Sequence[str] = (),
) -> None:
    """Serve until a stop signal, then finish running requests and close the store.

    The ``worker`` runs in this process. If it fails, the server stops too, because it would accept
    events that none handles. Other ``processes`` are stopped with the server and report to it. With
    ``shares_port``, other servers may listen on the same port. ``tls`` are the files of a
    certificate and of its key, for HTTPS.
    """
    runs = Worker(store) if worker else processes
    app = create_app(store, processes, mounts)
    check_address(store.settings, host)
    certificate = ServedCertificate(*tls) if tls else None
    listener = listen(host, port, is_shared=shares_port)
    address = (host, listener)
    await _serve(store, app, runs, address, on_ready, certificate, has_contexts=True)


async def supervise(processes: ServerProcesses, drain: float) -> None:
    """Run processes until a stop signal, then wait until they have ended."""
    await _run(None, processes, drain)


async def serve_mounts(
    store: FeatureStore,
    mounts: Sequence[AsgiMount],
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None] | None = None,
    tls: Sequence[str] = (),
) -> None:
    """Serve applications of other packages, without the API and without a worker."""
    app = create_mounts_app(store, mounts)
    check_address(store.settings, host)
    certificate = ServedCertificate(*tls) if tls else None
    address = (host, listen(host, port))
    await _serve(store, app, None, address, on_ready, certificate, has_contexts=True)


async def serve_worker(
    store: FeatureStore,
    worker: Worker,
    *,
    host: str,
    port: int | None,
    on_ready: Callable[[str | None], None] | None = None,
) -> None:
    """Run a worker and serve its metrics and probes, if it has a port, until a stop signal.

    While a server of the store is unavailable, it waits: a worker has nothing else to do.
    """
    if port is not None:
        check_address(store.settings, host)
    await worker.open()
    if port is not None:
        address = (host, listen(host, port))
        await _serve(store, create_worker_app(store, worker), worker, address, on_ready)
        return
    async with store:
        announce = partial(on_ready, None) if on_ready else None
        await _run(None, worker, store.settings.worker.drain_timeout, announce)


async def _serve(
    store: FeatureStore,
    app: App,
    worker: RunsWorker | None,
    address: tuple[str, socket.socket],
    on_ready: Callable[[str], None] | None,
    certificate: ServedCertificate | None = None,
    *,
    has_contexts: bool = False,
) -> None:
    host, listener = address
    try:
        engine = await runtime_of(store).open()
        if has_contexts:
            await engine.refresh.check_queries()
            await engine.warm_up()
            app.warm_up()
        if isinstance(worker, Worker):
            await worker.open()
        drain = store.settings.worker.drain_timeout
        announce = partial(
            announce_address, host, listener, on_ready, is_secure=certificate is not None
        )
        server = WebServer(app, store.settings, listener, announce, certificate)
        # A worker in this process has a watchdog.
        is_watched = isinstance(worker, Worker)
        deadline = engine.feature_calls.deadline
        with nullcontext() if is_watched else Watchdog(deadline, owns_process=False):
            async with app.running():
                await _run(server, worker, drain)
    finally:
        listener.close()
        app.flush()
        await store.close()
    # An error is the reason of the end, and the command prints it.
    log.info("server stopped")


async def _run(
    server: WebServer | None,
    worker: RunsWorker | None,
    drain: float,
    on_running: Callable[[], None] | None = None,
) -> None:
    """Run both until one of them ends, then stop the other; raise the error of either."""
    serving = asyncio.create_task(server.run_until_stopped()) if server else None
    working = asyncio.create_task(worker.run()) if worker else None
    tasks = [task for task in (serving, working) if task]

    def stop() -> None:
        if server:
            server.should_exit = True
        if worker:
            worker.stop()

    def stop_gently() -> None:
        stop()
        loop = asyncio.get_running_loop()
        loop.call_later(_QUIET_STOP_SECONDS, _log_if_busy, tasks, drain)

    def abort() -> None:
        if server:
            server.force_exit = True
        if working:
            working.cancel()

    with force_exit_after(drain + _FORCE_SECONDS) as end, _on_signals(end, stop_gently, abort):
        try:
            if on_running:
                on_running()
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop()
            await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def _log_if_busy(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Log that the process waits for running work, if it has not stopped within a moment."""
    if not all(task.done() for task in tasks):
        log.info(
            "stopping",
            waits_for="running handlers, refreshes and requests",
            seconds_at_most=seconds,
            hint="press Ctrl-C again or send SIGTERM again to stop at once",
        )
        log.flush()


def stop_signals() -> list[signal.Signals]:
    """Return the signals that stop a process; SIGHUP is not one of them under `nohup`."""
    is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    return [signal.SIGINT, signal.SIGTERM, *([] if is_nohup else [signal.SIGHUP])]


@contextmanager
def _on_signals(
    begin_stop: Callable[[], None], stop: Callable[[], None], abort: Callable[[], None]
) -> Generator[None]:
    """Call ``stop`` in the loop on the first stop signal, and ``abort`` on each further one.

    A thread forwards the signals, because a user function may block the loop. It calls
    ``begin_stop`` on the first one, and ends the process if the loop does not call ``abort``.
    """
    # Only the main thread receives signals; in another thread, the caller cancels the server.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, (arrived, sender) = asyncio.get_running_loop(), socket.socketpair()
    signals = stop_signals()

    def forward() -> None:
        with arrived:
            if _next_of(arrived, signals) == _END:
                return
            begin_stop()
            _call_in(loop, stop)
            while _next_of(arrived, signals) != _END:
                abort_or_exit()

    def abort_or_exit() -> None:
        called = _call_in(loop, abort)
        # In ticks: a pause of the whole process does not mean that the loop is blocked.
        if not any(called.wait(_TICK_SECONDS) for _ in range(_ABORT_TICKS)):
            log.error("process exits: event loop blocked")
            log.flush()
            os._exit(os.EX_SOFTWARE)

    threading.Thread(target=forward, name="headwater-signals", daemon=True).start()
    # The interpreter writes the number of a signal to the socket at once. A Python handler would
    # have to wait for the function that blocks this thread.
    sender.setblocking(False)  # noqa: FBT003 - the signature of the socket module
    previous = {number: signal.signal(number, lambda *_: None) for number in signals}
    previous_fd = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous_fd)
        for number, handler in previous.items():
            signal.signal(number, handler)
        with sender:
            sender.send(bytes([_END]))


def _next_of(arrived: socket.socket, signals: Sequence[signal.Signals]) -> int:
    """Return the next of these signals that arrives, or _END."""
    while (number := arrived.recv(1)[0]) != _END and number not in signals:
        pass  # a signal that another part of the process handles
    return number


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> threading.Event:
    """Call a function in a loop; return an event that is set when it is called."""
    called = threading.Event()

    def run() -> None:
        called.set()
        call()

    try:
        loop.call_soon_threadsafe(run)
    except RuntimeError:
        called.set()  # the loop is closed, so the process is about to end
    return called


def announce_address(
    host: str,
    listener: socket.socket,
    on_ready: Callable[[str], None] | None,
    *,
    is_secure: bool = False,
) -> None:
    """Log the address of a server that accepts requests, and call ``on_ready`` with it."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    place = f"{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}"
    url = f"{'https' if is_secure else 'http'}://{place}"
    log.info("server started", url=url)
    if on_ready:
        on_ready(url)
