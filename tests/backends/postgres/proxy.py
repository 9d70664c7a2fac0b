"""A proxy in front of a server, to make it unavailable and available again."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from tests.servers import quiet_port


class Proxy:
    """A proxy that forwards bytes while it is open; closing it breaks every connection."""

    def __init__(self, url: str) -> None:
        self._there = urlsplit(url)
        self._server: asyncio.Server | None = None
        self._through: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._port = quiet_port()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self._port)

    @property
    def url(self) -> str:
        """Return the URL of the server through the proxy."""
        there = self._there
        netloc = f"{there.username}:{there.password}@127.0.0.1:{self._port}"
        return there._replace(netloc=netloc).geturl()

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        for writer in self._through:
            writer.transport.abort()
        if self._passing:
            await asyncio.wait(self._passing)
        self._server = None

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        there = await asyncio.open_connection(self._there.hostname, self._there.port)
        self._through |= {writer, there[1]}
        await asyncio.gather(_pass_on(reader, there[1]), _pass_on(there[0], writer))
        self._through -= {writer, there[1]}
        self._passing.discard(task)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
