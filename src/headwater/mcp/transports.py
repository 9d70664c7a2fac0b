"""The transports of the MCP server: stdio for one local host, streamable HTTP for many."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.types import Receive, Scope, Send

from headwater.core.logging import forwarded_log, log
from headwater.mcp.server import create_server
from headwater.model.callers import Caller, set_caller
from headwater.store.feature_store import FeatureStore

STDIO_CALLER = Caller("mcp stdio")

_CLOSE_SECONDS = 5.0
_SDK = "mcp"
"""The logger of the SDK."""


async def serve_stdio(store: FeatureStore) -> None:
    """Serve the process that started this one, as the local user, until it closes the stream."""
    set_caller(STDIO_CALLER)
    server = create_server(store)
    loop, ending = asyncio.get_running_loop(), _Exit(store)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ending.begin)
    with forwarded_log(_SDK, _forward, private=store.settings.record.is_private):
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


class _Exit:
    """The end of the process on a signal: the thread that waits for input cannot be cancelled."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._close_and_exit())

    async def _close_and_exit(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._store.close()
        log.flush()
        os._exit(os.EX_OK)


class StreamableHttp:
    """The ASGI application of the MCP endpoint, without sessions.

    It answers requests whose caller is already admitted. A response is JSON, unless the call takes
    so long that a stream has to keep the connection open.
    """

    def __init__(self, store: FeatureStore) -> None:
        self._private = store.settings.record.is_private
        self._manager = StreamableHTTPSessionManager(
            create_server(store),
            stateless=True,
            max_request_body_size=store.settings.http.max_body_bytes,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer requests inside of this context, which can be entered once."""
        with forwarded_log(_SDK, _forward, private=self._private):
            async with self._manager.run():
                yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


def _forward(_: logging.LogRecord, fields: dict[str, Any]) -> None:
    log.warning("mcp library warning", **fields)
