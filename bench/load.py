"""An HTTP load generator: N keep-alive connections, each always with one request in flight."""

import argparse
import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import uvloop

WARM_UP_SECONDS = 0.3
IDS = 100


@dataclass
class Tally:
    """The responses since the warm-up."""

    latencies: list[float] = field(default_factory=list)
    errors: int = 0

    def clear(self) -> None:
        self.latencies.clear()
        self.errors = 0


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last is answered; reads no more than it must."""

    def __init__(self, requests: Iterator[bytes], tally: Tally) -> None:
        self.requests = requests
        self.tally = tally
        self.received = b""
        self.expected = 0  # length of the whole response, 0 while its head is incomplete
        self.sent_at = 0.0
        self.done = False
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.send()

    def send(self) -> None:
        self.sent_at = time.perf_counter()
        self.transport.write(next(self.requests))

    def data_received(self, data: bytes) -> None:
        received = self.received = self.received + data if self.received else data
        if not self.expected:
            self.expected = response_length(received)
        if not self.expected or len(received) < self.expected:
            return
        self.tally.latencies.append(time.perf_counter() - self.sent_at)
        if not received.startswith(b"HTTP/1.1 2"):
            self.tally.errors += 1
        self.received, self.expected = b"", 0
        self.send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done:
            self.tally.errors += 1

    def close(self) -> None:
        self.done = True
        self.transport.abort()


def response_length(received: bytes) -> int:
    """The length of head and body together, or 0 while the head is incomplete."""
    head_end = received.find(b"\r\n\r\n")
    if head_end < 0:
        return 0
    head = received[: head_end + 2].lower()
    start = head.index(b"content-length:") + len(b"content-length:")
    return head_end + 4 + int(head[start : head.index(b"\r\n", start)])


def requests_for(path: str, headers: list[str], body: str) -> Iterator[bytes]:
    """Yield requests endlessly: POST with a body, else GET; `{n}` cycles through the entities."""
    return itertools.cycle([request(path, headers, body, str(n)) for n in range(IDS)])


def request(path: str, headers: list[str], body: str, number: str) -> bytes:
    path, body = path.replace("{n}", number), body.replace("{n}", number)
    lines = [f"{'POST' if body else 'GET'} {path} HTTP/1.1", "Host: bench", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}"]
    return ("\r\n".join(lines) + "\r\n\r\n" + body).encode()


async def generate(
    port: int, requests: Iterator[bytes], connections: int, seconds: float
) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    tally = Tally()
    opened: list[Connection] = []
    for _ in range(connections):
        _, connection = await loop.create_connection(
            lambda: Connection(requests, tally), "127.0.0.1", port
        )
        opened.append(connection)
    await asyncio.sleep(min(WARM_UP_SECONDS, seconds))
    tally.clear()
    start, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    # A slow server may have answered nothing in a very short round.
    while not (tally.latencies or tally.errors):  # noqa: ASYNC110 - rare, and an event costs more
        await asyncio.sleep(0.01)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu
    latencies = sorted(tally.latencies)
    for connection in opened:
        connection.close()
    return {
        "rate": len(latencies) / elapsed,
        "p50_ms": percentile(latencies, 0.50) * 1000,
        "p99_ms": percentile(latencies, 0.99) * 1000,
        "errors": tally.errors,
        "client_cpu": cpu / elapsed,
    }


def percentile(ordered: list[float], share: float) -> float:
    return ordered[int(len(ordered) * share)] if ordered else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("port", type=int)
    parser.add_argument("path")
    parser.add_argument("--header", action="append", default=[])
    parser.add_argument("--body", default="")
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    requests = requests_for(given.path, given.header, given.body)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        result = runner.run(generate(given.port, requests, given.connections, given.seconds))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
