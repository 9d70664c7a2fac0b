"""The web server: uvicorn with limits of connections, heads and time, and with Headwater's log."""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import resource
import socket
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import Any

import uvicorn

from headwater.core.logging import forwarded_log, log
from headwater.core.tls import ServedCertificate
from headwater.errors import ConfigError
from headwater.http.app import App
from headwater.http.server.client_limits import ConnectionGate, TimeLimits
from headwater.http.server.connection import Connection
from headwater.settings.schema import Settings

_LISTEN_BACKLOG = 2048
_TICKS_PER_SECOND = 10
# Together enough for a client that sends one request after the other.
_LINGER_POLLS = 20
_LINGER_POLL_SECONDS = 0.01
# For the backends, so that they can always open files and sockets.
_RESERVED_DESCRIPTORS = 256


def reserve_port(host: str, port: int) -> socket.socket:
    """Return a socket that keeps a port for processes that share it; it accepts no connections.

    Raise ConfigError if another process listens on the port, even if that one shares it.
    """
    with listen(host, port) as probe:
        address = probe.getsockname()
    reserved = socket.socket(probe.family, probe.type)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    reserved.bind(address)
    return reserved


def listen(host: str, port: int, *, is_shared: bool = False) -> socket.socket:
    """Return a listening socket; port 0 takes a free port.

    The kernel distributes connections among the processes that listen on a shared port.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server(
            (host, port), family=family, backlog=_LISTEN_BACKLOG, reuse_port=is_shared
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} of {host} is in use; stop the process that uses it, or choose a port "
                "with --port or HEADWATER_HTTP_PORT (0: any free port), for a worker --metrics-port"
            ) from error
        raise ConfigError(f"cannot listen on port {port} of {host}: {error.strerror}") from error


def connection_limit() -> int:
    """Return how many connections clients may open: all descriptors except a reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(1, soft - min(_RESERVED_DESCRIPTORS, soft // 2))


class WebServer(uvicorn.Server):
    """Uvicorn without its signal handlers, and with Headwater's log."""

    def __init__(
        self,
        app: App,
        settings: Settings,
        listener: socket.socket,
        announce: Callable[[], None],
        certificate: ServedCertificate | None = None,
    ) -> None:
        gate = ConnectionGate(connection_limit(), settings.http.max_connections_per_address)
        limits = TimeLimits.of(settings.http)
        self._protocol: type[Connection] = type(
            "OurProtocol", (Connection,), {"gate": gate, "time_limits": limits}
        )
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http=self._protocol,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                proxy_headers=False,
                ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
                timeout_graceful_shutdown=math.ceil(settings.worker.drain_timeout),
            )
        )
        self._private = app.private
        self._end_streams = app.end_streams
        self._listener = listener
        self._announce = announce
        self._seconds = 0
        self._certificate = certificate
        self._handshake_timeout = settings.http.head_timeout if certificate else None

    async def run_until_stopped(self) -> None:
        with forwarded_log("uvicorn.error", _forward, private=self._private):
            try:
                await self.serve([self._listener])
            finally:
                for connection in self._connections():
                    connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        # Uvicorn's own leaves the handshake to asyncio, whose limit is a minute; until its end a
        # connection has no protocol that could be given a deadline.
        config = self.config
        make = partial(self._protocol, config, self.server_state, self.lifespan.state)
        server = await asyncio.get_running_loop().create_server(
            make,
            sock=self._listener,
            ssl=config.ssl,
            ssl_handshake_timeout=self._handshake_timeout,
            backlog=config.backlog,
        )
        self.servers = [server]
        self.started = True
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._end_streams()
        for server in self.servers:
            server.close()
        await self._linger()
        await super().shutdown(sockets)

    async def _linger(self) -> None:
        """Tell clients by the next response that their connection ends.

        A request that is sent while the connection is closed would be lost.
        """
        self._protocol.is_ending = True
        for _ in range(_LINGER_POLLS):
            if self.force_exit or not self._connections():
                break
            await asyncio.sleep(_LINGER_POLL_SECONDS)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SECOND == 0:
            self._seconds += 1
            for connection in self._connections():
                connection.check_deadline(self._seconds)
            if self._certificate is not None:
                _refresh(self._certificate)
        return await super().on_tick(counter)

    def _connections(self) -> list[Connection]:
        connections = self.server_state.connections
        return [ours for ours in connections if isinstance(ours, Connection)]

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        # Uvicorn would raise the signal again after a clean stop, and the process would not exit 0.
        yield


def _refresh(certificate: ServedCertificate) -> None:
    try:
        if certificate.refresh():
            log.info("certificate read again")
    except ConfigError as error:
        log.error("certificate not read again", error=str(error))


def _forward(record: logging.LogRecord, fields: dict[str, Any]) -> None:
    if record.levelno >= logging.ERROR:
        log.error("web server error", **fields)
    else:
        log.warning("web server warning", **fields)
