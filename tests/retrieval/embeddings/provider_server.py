"""A local server that speaks the wire formats of the providers, with faults on demand."""

from __future__ import annotations

import asyncio
import base64
import struct
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

KEY = "sk-secret-key-of-the-tests"


class Reply(NamedTuple):
    """An answer; one that promises more than its content ends in the middle."""

    status: int
    content: bytes
    headers: Mapping[str, str] = {}
    missing_bytes: int = 0


class Drop:
    """Close the connection without an answer."""


class Answered:
    """No fault: answer as usual."""


ANSWERED = Answered()


class Hang:
    """Answer as usual, but only after `go`."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.go = asyncio.Event()


class Seen(NamedTuple):
    """A request that the server got."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def texts(self) -> Sequence[str]:
        texts: Sequence[str] = self.body.get("input") or self.body["texts"]
        return texts


def error(status: int, message: str = "no", code: str | None = None, **headers: str) -> Reply:
    """Return an error as OpenAI sends it; the underscores of header names become hyphens."""
    content = msgspec.json.encode({"error": {"message": message, "code": code}})
    return Reply(status, content, {name.replace("_", "-"): v for name, v in headers.items()})


def vector_of(text: str, dimensions: int) -> list[float]:
    """Return the vector of a text, which is not of unit length."""
    return [float(len(text) + 1), *([1.0] * (dimensions - 1))]


class ProviderServer:
    """OpenAI, Azure, Voyage and Cohere, by the path of the request.

    Each request takes the next of the faults; without one it is answered as the provider would.
    """

    def __init__(self) -> None:
        self.faults: deque[Reply | Drop | Hang | Answered] = deque()
        self.seen: list[Seen] = []
        self.running = 0
        self.most_running = 0
        self.dimensions = 8
        self.as_floats = False
        self.url = ""
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._writers)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[ProviderServer]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client has closed the connection
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        start, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
        content = await reader.readexactly(int(headers["content-length"]))
        seen = Seen(start.split()[1], headers, msgspec.json.decode(content))
        self.seen.append(seen)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            reply = await self._reply(seen)
        finally:
            self.running -= 1
        if reply is None:
            writer.transport.abort()
            return False
        length = len(reply.content) + reply.missing_bytes
        names = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
        head = f"HTTP/1.1 {reply.status} Reason\r\n{names}content-length: {length}\r\n\r\n"
        writer.write(head.encode() + reply.content)
        await writer.drain()
        return not reply.missing_bytes

    async def _reply(self, seen: Seen) -> Reply | None:
        fault = self.faults.popleft() if self.faults else None
        if isinstance(fault, Reply):
            return fault
        if isinstance(fault, Drop):
            return None
        if isinstance(fault, Hang):
            fault.begun.set()
            await fault.go.wait()
        problem = _problem(seen)
        if problem is not None:
            return error(400, problem)
        return Reply(200, msgspec.json.encode(self._success(seen)))

    def _success(self, seen: Seen) -> object:
        asked = seen.body.get("dimensions") or seen.body.get("output_dimension")
        vectors = [vector_of(text, asked or self.dimensions) for text in seen.texts]
        tokens = sum(len(text.split()) for text in seen.texts)
        if seen.path.endswith("/embed"):
            meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": tokens}}
            return {"id": "1", "embeddings": {"float": vectors}, "texts": seen.texts, "meta": meta}
        data = [
            {"object": "embedding", "index": index, "embedding": self._encoded(vector)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        # The order is free; the index counts.
        return {"object": "list", "data": data[::-1], "model": seen.body["model"], "usage": usage}

    def _encoded(self, vector: list[float]) -> object:
        if self.as_floats:
            return vector
        return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def _problem(seen: Seen) -> str | None:
    """Return why the provider would refuse a request."""
    limit = 96 if seen.path.endswith("/embed") else 2048
    if not 0 < len(seen.texts) <= limit or not all(seen.texts):
        return "input cannot be an empty string, or has too many items"
    if seen.path.endswith("/embed") and seen.body["input_type"] not in (
        "search_document",
        "search_query",
    ):
        return "invalid input_type"
    if not urlsplit(seen.path).path.endswith(("/embeddings", "/embed")):
        return "unknown path"
    return None
