"""One process that listens: the API and, beside it, a worker; or a worker's own probes."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import signal
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

import uvicorn

from headwater.core.deadlines import ending
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.engine.worker import Worker
from headwater.errors import ConfigError
from headwater.http.access import check_address
from headwater.http.app import App, create_app, create_worker_app
from headwater.http.problems import format_traceback
from headwater.store.feature_store import FeatureStore

_KEEP_ALIVE_SECONDS = 30
_FORCE_SECONDS = 5.0
_SILENT_SECONDS = 0.3
_CONNECTIONS_WAITING = 2048
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def serve(
    store: FeatureStore,
    *,
    host: str,
    port: int,
    worker: bool = True,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT, then finishes what was begun and closes the store.

    A worker that fails takes the server with it: events that are accepted are processed.
    """
    own = Worker(store) if worker else None
    await _serve(store, create_app(store), own, (host, port), on_ready, assembles=True)


async def serve_worker(
    store: FeatureStore,
    worker: Worker,
    *,
    host: str,
    port: int,
    on_ready: Callable[[str], None] | None = None,
) -> None:
    """Runs a worker and serves its metrics and probes until SIGTERM or SIGINT, likewise."""
    await _serve(store, create_worker_app(store, worker), worker, (host, port), on_ready)


async def _serve(
    store: FeatureStore,
    app: App,
    worker: Worker | None,
    address: tuple[str, int],
    on_ready: Callable[[str], None] | None,
    *,
    assembles: bool = False,
) -> None:
    host, port = address
    check_address(store.settings, host)
    listener = listen(host, port)
    try:
        engine = await runtime_of(store).open()
        if assembles:
            await engine.assembler.warm_up()
        drain = store.settings.worker.drain_timeout
        server = _Server(app, listener, drain, lambda: _announce(host, listener, on_ready))
        await _run(server, worker, drain)
    finally:
        listener.close()
        app.flush()
        await store.close()
        log.info("server stopped")
        log.flush()


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections can be made to; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_CONNECTIONS_WAITING)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use; stop what uses it, or choose another with "
                "--port or HEADWATER_HTTP_PORT (0 takes a free one), a worker's with --metrics-port"
            ) from error
        raise ConfigError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


class _Server(uvicorn.Server):
    """Uvicorn, with our signals and our log."""

    def __init__(
        self, app: App, listener: socket.socket, drain: float, announce: Callable[[], None]
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=math.ceil(drain),
            )
        )
        self._private = app.private
        self._listener = listener
        self._announce = announce

    async def run_until_stopped(self) -> None:
        with _logged("uvicorn.error", private=self._private):
            await self.serve([self._listener])

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn would raise the signal again after a clean end, and the process would not exit 0.
        yield


async def _run(server: _Server, worker: Worker | None, drain: float) -> None:
    """Runs both until one of them ends, which ends the other; raises what made either fail."""
    serving = asyncio.create_task(server.run_until_stopped())
    working = asyncio.create_task(worker.run()) if worker else None
    tasks = [task for task in (serving, working) if task]

    def stop() -> None:
        server.should_exit = True
        if worker:
            worker.stop()

    def stop_or_give_up() -> None:
        # Asked a second time, nothing is waited for any more.
        if server.should_exit:
            server.force_exit = True
            if working:
                working.cancel()
        else:
            say_if_busy(tasks, drain)
        end()
        stop()

    with ending(drain + _FORCE_SECONDS) as end, _on_signals(stop_or_give_up):
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop()
            await asyncio.wait(tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()


def say_if_busy(tasks: Sequence[asyncio.Task[None]], seconds: float) -> None:
    """Says what is waited for, and how to wait no longer, unless all ends in a moment."""

    def say() -> None:
        if not all(task.done() for task in tasks):
            log.info(
                "stopping",
                waits_for="handlers, refreshes and requests that run",
                seconds_at_most=seconds,
                hint="a second Ctrl-C or SIGTERM ends them at once",
            )
            log.flush()

    asyncio.get_running_loop().call_later(_SILENT_SECONDS, say)


@contextmanager
def _on_signals(stop: Callable[[], None]) -> Generator[None]:
    # Only the main thread is told of signals; elsewhere whoever runs the server cancels it.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def _announce(host: str, listener: socket.socket, on_ready: Callable[[str], None] | None) -> None:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    url = f"http://{f'[{shown}]' if ':' in shown else shown}:{listener.getsockname()[1]}"
    log.info("server started", url=url)
    log.flush()
    if on_ready:
        on_ready(url)


class _LogHandler(logging.Handler):
    """Hands records of the standard library's logging to our log."""

    def __init__(self, *, private: bool) -> None:
        super().__init__(logging.WARNING)
        self._private = private

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"detail": record.getMessage()}
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            fields["traceback"] = format_traceback(error, private=self._private)
        if record.levelno >= logging.ERROR:
            log.error("server", **fields)
        else:
            log.warning("server", **fields)


@contextmanager
def _logged(name: str, *, private: bool) -> Generator[None]:
    logger, handler = logging.getLogger(name), _LogHandler(private=private)
    propagates = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
