"""ASGI applications of other packages at a path of the API, such as the MCP server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headwater.http.routing.responses import NO_SNIFF
from headwater.http.routing.route import RouteScope


class AsgiMount(msgspec.Struct, frozen=True):
    """An application that answers POST requests of admitted callers at a path.

    ``running`` is the context in which it answers; it is entered once, while the server runs.
    """

    path: str
    app: ASGIApp
    running: Callable[[], AbstractAsyncContextManager[None]]


class MountEndpoint:
    """The endpoint of a mount: any key is admitted, and its scopes and limits apply inside."""

    scope: RouteScope = "any"
    applies_limits = True

    def __init__(self, mount: AsgiMount) -> None:
        self._app = mount.app

    async def respond(self, scope: Scope, receive: Receive, path: Sequence[str]) -> Response:
        """Return a response that the application sends."""
        return _ForwardedResponse(self._app)


class _ForwardedResponse(Response):
    """The response of an application, with the headers that are added to every response."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__()
        self.raw_headers = [NO_SNIFF]
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.status_code = message["status"]
                message = {**message, "headers": [*message["headers"], *self.raw_headers]}
            await send(message)

        await self._app(scope, receive, send_with_headers)
