"""A limit of open connections, so that the backends can always open files and sockets."""

from __future__ import annotations

import asyncio
import resource

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from headwater.core.logging import log
from headwater.http.problems import problem_response
from headwater.http.request_errors import TooManyConnectionsError

_RESERVED_DESCRIPTORS = 256


def connection_limit() -> int:
    """Return how many connections clients may open: all descriptors except a reserve."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        soft = 1 << 20
    return max(1, soft - min(_RESERVED_DESCRIPTORS, soft // 2))


def limited_protocol(limit: int) -> type[HttpToolsProtocol]:
    """Return a protocol that refuses more connections than the limit, and closes idle ones."""
    refusal = _refusal(limit)
    is_logged = False

    class LimitedProtocol(HttpToolsProtocol):
        """HTTP/1.1 with a limit of connections."""

        is_refused = False

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            nonlocal is_logged
            self.is_refused = len(self.connections) >= limit
            if not self.is_refused:
                super().connection_made(transport)
                # Uvicorn starts this timer after a response only.
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )
                is_logged = is_logged and len(self.connections) > limit // 2
                return
            self.transport = transport
            transport.write(refusal)
            transport.close()
            if not is_logged:
                is_logged = True
                log.warning("connections refused: limit reached", limit=limit)

        def data_received(self, data: bytes) -> None:
            if not self.is_refused:
                super().data_received(data)

    return LimitedProtocol


def _refusal(limit: int) -> bytes:
    response = problem_response(TooManyConnectionsError(limit))
    head = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
    status = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n"
    return f"{status}{head}\r\n".encode() + bytes(response.body)
