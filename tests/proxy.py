"""A proxy in front of a server, for a network that is slow, loses data or breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlsplit

from tests.servers import quiet_port

POLL_SECONDS = 0.01


class InFront(Protocol):
    """What listens on a port in front of a server."""

    port: int
    target: int


class Proxy:
    """A proxy that forwards bytes while it is open; closing it breaks every connection.

    Its attributes may be changed at any time, also by another thread.
    """

    def __init__(self, target: int = 0, host: str = "127.0.0.1") -> None:
        self.port = quiet_port()
        self.target = target
        """The port of the server."""
        self._host = host
        self.delay = 0.0
        """Seconds that every piece of data takes longer."""
        self.holds = False
        """Whether data is kept back, in both directions, until it is False again."""
        self.cut_every = 0
        """If not 0: of so many pieces of answers one is cut in half, and its connection breaks."""
        self.loses_answers = False
        """Whether answers are lost, and requests are not; a connection breaks after its loss."""
        self._server: asyncio.Server | None = None
        self._through: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()
        self._answers = 0

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", self.port)

    def url(self, url: str) -> str:
        """Return the URL of the server with the port of the proxy in place of its own."""
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}{at}127.0.0.1:{self.port}").geturl()

    def choose(self) -> int:
        """Return the port that a new connection goes to."""
        return self.target

    async def close(self) -> None:
        if self._server is None:
            return
        self._server.close()
        self.holds = False
        for writer in self._through:
            writer.transport.abort()
        if self._passing:
            await asyncio.wait(self._passing)
        self._server = None

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        self._through.add(writer)
        try:
            there = await asyncio.open_connection(self._host, self.choose())
        except OSError:
            writer.transport.abort()
        else:
            self._through.add(there[1])
            await asyncio.gather(
                self._pass_on(reader, there[1]), self._pass_on(there[0], writer, is_answer=True)
            )
            self._through.discard(there[1])
        self._through.discard(writer)
        self._passing.discard(task)

    async def _pass_on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool = False
    ) -> None:
        has_lost = False
        with suppress(ConnectionError):
            while data := await reader.read(65_536):
                if is_answer and self.loses_answers:
                    has_lost = True
                    continue
                if has_lost:
                    break
                if self.delay:
                    await asyncio.sleep(self.delay)
                while self.holds:  # noqa: ASYNC110 - it comes true in another thread
                    await asyncio.sleep(POLL_SECONDS)
                if is_answer and self._is_cut():
                    writer.write(data[: len(data) // 2])
                    break
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def _is_cut(self) -> bool:
        self._answers += 1
        return bool(self.cut_every) and self._answers % self.cut_every == 0


def announced(role: str, proxies: Sequence[InFront], number: int) -> tuple[str, ...]:
    """Return the option by which a Redis names the port of its proxy, if there are any."""
    return (f"--{role}-announce-port", str(proxies[number].port)) if proxies else ()
