"""A network that fails as a test says, between a client and the application of a real server."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import httpx


class Answer(NamedTuple):
    """A response in place of the server's."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


def refused(request: httpx.Request) -> Exception:
    """Fail before the request is sent."""
    return httpx.ConnectError("connection refused", request=request)


def lost(request: httpx.Request) -> Exception:
    """Lose the response of a request that the server has answered."""
    return httpx.ReadError("connection reset", request=request)


Fault = Answer | Callable[[httpx.Request], Exception] | None
"""A response, ``refused``, ``lost``, or None for the server's own response."""


class Unreliable(httpx.AsyncBaseTransport):
    """Applies one fault to each request, and none to further ones."""

    def __init__(self, app: Any, *faults: Fault) -> None:
        self._server = httpx.ASGITransport(app)
        self.faults = list(faults)
        self.requests: list[httpx.Request] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        fault = self.faults.pop(0) if self.faults else None
        if isinstance(fault, Answer):
            return httpx.Response(fault.status, headers=dict(fault.headers), content=fault.body)
        if fault is refused:
            raise refused(request)
        response = await self._server.handle_async_request(request)
        if fault is lost:
            await response.aread()
            raise lost(request)
        return response
