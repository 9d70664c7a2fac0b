"""The load: connections that send requests as fast as they are answered, or at a constant rate."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol, cast

from bench.load import response_length
from chaos.waiting import until
from soak.mix import Request

CONNECTIONS = 32
ANSWERED_WITHIN_SECONDS = 30.0
_STATUS = slice(len("HTTP/1.1 "), len("HTTP/1.1 200"))
_LOST = "connection lost"
_UNANSWERED = "unanswered"


def new_latencies() -> defaultdict[str, array[float]]:
    return defaultdict(lambda: array("d"))


@dataclass
class Tally:
    """The answers to a load: latencies in seconds, and failures by kind and reason."""

    latencies: defaultdict[str, array[float]] = field(default_factory=new_latencies)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: float = 0.0
    cpu: float = 0.0
    """Time of the processor that the generator took."""
    rate: float = 0.0
    """Requests that were due in a second; 0 if each followed an answer."""

    @property
    def answered(self) -> int:
        return sum(map(len, self.latencies.values()))


class _Load(Protocol):
    def answered(self, connection: _Connection, status: str) -> None: ...

    def lost(self, connection: _Connection) -> None: ...


class _Connection(asyncio.Protocol):
    """A connection with at most one request in flight."""

    transport: asyncio.Transport

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._received = b""
        self._expected = 0
        self.request: Request | None = None
        self.due = 0.0
        self.is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def send(self, request: Request, due: float) -> None:
        self.request, self.due = request, due
        self.transport.write(request.data)

    def data_received(self, data: bytes) -> None:
        received = self._received = self._received + data if self._received else data
        if not self._expected:
            self._expected = response_length(received)
        if self._expected and len(received) >= self._expected:
            self._received, self._expected = b"", 0
            self._load.answered(self, received[_STATUS].decode("latin-1"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        self._load.lost(self)


class Load:
    """Keep-alive connections to a server, and the tally of its answers."""

    def __init__(self, port: int, requests: Iterator[Request]) -> None:
        self._port = port
        self._requests = requests
        self._idle: deque[_Connection] = deque()
        self._waiting: deque[tuple[Request, float]] = deque()
        self._unanswered: set[_Connection] = set()
        self._tally = Tally()
        self._is_closed_loop = False
        self._reconnecting: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Open the connections."""
        for _ in range(CONNECTIONS):
            await self._connect()

    async def saturate(self, seconds: float) -> Tally:
        """Send a request on each connection as soon as the one before is answered."""
        tally, began, cpu = self._begin()
        self._is_closed_loop = True
        while self._idle:
            self._send(self._idle.popleft(), next(self._requests), time.perf_counter())
        await asyncio.sleep(seconds)
        self._is_closed_loop = False
        await self._finish()
        return self._ended(tally, began, cpu)

    async def arrive(self, rate: float, seconds: float) -> Tally:
        """Send so many requests in a second, without waiting for answers.

        A latency counts from the time at which its request was due, so that a server that stalls
        does not hide the requests that would have come in the meantime.
        """
        tally, began, cpu = self._begin()
        tally.rate = rate
        for number in range(int(rate * seconds)):
            due = began + number / rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            self._waiting.append((next(self._requests), due))
            self._send_waiting()
        await self._finish()
        return self._ended(tally, began, cpu)

    async def close(self) -> None:
        """Close the connections."""
        connections, self._idle = self._idle, deque()
        for connection in connections:
            connection.transport.abort()
        for task in self._reconnecting:
            task.cancel()

    def answered(self, connection: _Connection, status: str) -> None:
        request = connection.request
        assert request is not None
        now = time.perf_counter()
        self._tally.latencies[request.kind].append(now - connection.due)
        if not status.startswith("2"):
            self._tally.errors[request.kind, status] += 1
        connection.request = None
        self._unanswered.discard(connection)
        if self._is_closed_loop:
            self._send(connection, next(self._requests), now)
        else:
            self._idle.append(connection)
            self._send_waiting()

    def lost(self, connection: _Connection) -> None:
        if connection.request is not None:
            self._tally.errors[connection.request.kind, _LOST] += 1
            self._unanswered.discard(connection)
        elif connection not in self._idle:
            return  # closed by us
        else:
            self._idle.remove(connection)
        task = asyncio.get_running_loop().create_task(self._connect())
        self._reconnecting.add(task)
        task.add_done_callback(self._reconnecting.discard)

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            lambda: _Connection(self), "127.0.0.1", self._port
        )
        self._idle.append(connection)
        self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._idle:
            self._send(self._idle.popleft(), *self._waiting.popleft())

    def _send(self, connection: _Connection, request: Request, due: float) -> None:
        self._unanswered.add(connection)
        connection.send(request, due)

    def _begin(self) -> tuple[Tally, float, float]:
        self._tally = Tally()
        return self._tally, time.perf_counter(), time.process_time()

    async def _finish(self) -> None:
        """Wait for the last answers; count those that do not come."""
        await until(self._is_answered, ANSWERED_WITHIN_SECONDS)
        for request, _ in self._waiting:
            self._tally.errors[request.kind, _UNANSWERED] += 1
        for connection in self._unanswered:
            assert connection.request is not None
            self._tally.errors[connection.request.kind, _UNANSWERED] += 1
        self._waiting.clear()

    async def _is_answered(self) -> bool:
        return not self._unanswered and not self._waiting

    def _ended(self, tally: Tally, began: float, cpu: float) -> Tally:
        tally.seconds = time.perf_counter() - began
        tally.cpu = time.process_time() - cpu
        return tally
