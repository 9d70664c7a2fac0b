"""Requests that attack the server: invalid framing, endless heads, slow clients."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pytest

from headwater import FeatureStore
from headwater.declarations.runtime import runtime_of
from headwater.http.server.client_limits import ConnectionDeadline, Phase, TimeLimits
from tests.http.conftest import KEY, MakeStore, Serving, wait_until

BODY = b'{"entity_id": "u1"}'
LENGTH = b"Content-Length: 19"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n13\r\n" + BODY + b"\r\n0"


def head(*headers: bytes, path: bytes = b"/ingest/visit", key: str | None = KEY) -> bytes:
    lines = [b"POST " + path + b" HTTP/1.1", b"Host: localhost"]
    if key is not None:
        lines.append(b"X-API-Key: " + key.encode())
    return b"\r\n".join([*lines, *headers, b"", b""])


class RawClient:
    """A client that sends bytes as they are."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> tuple[int, dict[str, object]]:
        """Return the status and the problem of the answer; check that the server disconnects."""
        async with asyncio.timeout(60):
            answer = await self.reader.read()
        first, _, body = answer.partition(b"\r\n\r\n")
        assert b"connection: close" in first, answer
        return int(first.split()[1]), msgspec.json.decode(body)

    async def is_disconnected(self) -> bool:
        async with asyncio.timeout(60):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True


@asynccontextmanager
async def connected(client: httpx.AsyncClient) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection(client.base_url.host, client.base_url.port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.transport.abort()


INVALID = [
    head(b"Content-Length: 19\r\nContent-Length: 3") + BODY,
    head(b"Content-Length: 19\r\nContent-Length: 19") + BODY,
    head(b"Content-Length: 19, 19") + BODY,
    head(b"Content-Length: +19") + BODY,
    head(b"Content-Length: -19") + BODY,
    head(b"Content-Length: 0x13") + BODY,
    head(b"Content-Length : 19") + BODY,
    head(b"Content-Length: " + b"9" * 4_301) + BODY,
    head(LENGTH + b"\r\nTransfer-Encoding: chunked") + BODY,
    head(b"Transfer-Encoding: chunked\r\n" + LENGTH) + BODY,
    head(b"Transfer-Encoding: chunked, identity") + BODY,
    head(b"Transfer-Encoding: xchunked") + BODY,
    head(b"X-Other: 1\n" + LENGTH) + BODY,
    head(b"X-Other: 1\r" + LENGTH) + BODY,
    head(b"X-Other: 1\r\n 2", LENGTH) + BODY,
    head(b"X-Other: 1\x002", LENGTH) + BODY,
    head(b"X-\x00Other: 1", LENGTH) + BODY,
    head(LENGTH, path=b"/ingest/visit HTTP/1.1\nX: y") + BODY,
    head(b"Transfer-Encoding: chunked") + b"13\n" + BODY + b"\n0\n\n",
    head(b"Transfer-Encoding: chunked") + b"fffffffffffffffff\r\n" + BODY,
    head(b"Transfer-Encoding: chunked") + b"-1\r\n" + BODY,
    b"this is not HTTP\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    head(b"Content-Length: " + b"0" * 4_300 + b"19", b"Connection: close") + BODY,
]


async def test_a_request_with_ambiguous_or_invalid_framing_is_refused(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store, worker=False) as client:
        for request in INVALID:
            async with connected(client) as attacker:
                attacker.writer.write(request)
                status, problem = await attacker.answer()
                assert (status, problem["type"]) == (400, "urn:headwater:problem:malformed"), (
                    request
                )
        assert (await client.get("/healthz")).status_code == 200
        engine = await runtime_of(store).open()
        assert await engine.backends.bus.backlog() == 0


async def test_trailers_do_not_change_the_headers(store: FeatureStore, serving: Serving) -> None:
    trailer = b"\r\nX-API-Key: " + KEY.encode() + b"\r\n\r\n"
    async with serving(store, worker=False) as client, connected(client) as attacker:
        attacker.writer.write(head(b"Connection: close", CHUNKED, key=None)[:-4] + trailer)
        status, problem = await attacker.answer()
        assert (status, problem["type"]) == (401, "urn:headwater:problem:key-required")


SIZES: list[tuple[list[bytes], bytes, int]] = [
    ([b"X-Header: 1"] * 97, b"/healthz", 405),
    ([b"X-Header: 1"] * 98, b"/healthz", 431),
    ([b"X-Header: " + b"x" * 65_300], b"/healthz", 405),
    ([b"X-Header: " + b"x" * 65_500], b"/healthz", 431),
    ([], b"/" + b"x" * 16_383, 404),
    ([], b"/" + b"x" * 16_384, 414),
]


async def test_heads_and_urls_have_a_maximum_size(store: FeatureStore, serving: Serving) -> None:
    async with serving(store, worker=False) as client:
        for headers, path, expected in SIZES:
            async with connected(client) as attacker:
                request = head(*headers, b"Connection: close", path=path)
                # In two parts, of which the first alone is not too large.
                attacker.writer.write(request[:60_000])
                await attacker.writer.drain()
                attacker.writer.write(request[60_000:])
                assert (await attacker.answer())[0] == expected


ENDLESS: dict[str, tuple[bytes, Callable[[int], bytes], int]] = {
    "headers": (head()[:-2], lambda n: b"X-Header-%d: 1\r\n" % n, 431),
    "one header": (head()[:-2] + b"X-Header: ", lambda _: b"x" * 16, 431),
    "the URL": (b"GET /", lambda _: b"x" * 16, 414),
    "empty lines": (b"", lambda _: b"\r\n", 431),
    "trailers": (head(CHUNKED)[:-4] + b"\r\n", lambda n: b"X-Header-%d: 1\r\n" % n, 431),
    "chunk extensions": (
        head(b"Transfer-Encoding: chunked") + b"1;",
        lambda _: b"x" * 16,
        431,
    ),
}


async def test_an_endless_head_is_refused_while_memory_stays_flat(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store, worker=False) as client:
        await client.get("/healthz")
        before = resident_bytes()
        for endless, (begin, piece, expected) in ENDLESS.items():
            async with connected(client) as attacker:
                attacker.writer.write(begin)
                sending = asyncio.create_task(send_much(attacker.writer, piece))
                assert (await attacker.answer())[0] == expected, endless
                sending.cancel()
        assert resident_bytes() - before < 60 << 20


async def send_much(writer: asyncio.StreamWriter, piece: Callable[[int], bytes]) -> None:
    """Send 200 MB."""
    block = b"".join(piece(number) for number in range(4_096))
    with suppress(ConnectionError):
        for _ in range((200 << 20) // len(block)):
            writer.write(block)
            await writer.drain()


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


async def test_clients_that_take_too_long_are_disconnected(
    make_store: MakeStore, serving: Serving
) -> None:
    limits = {"head_timeout": 2, "idle_timeout": 2, "transfer_timeout": 2}
    async with (
        serving(make_store(http=limits), worker=False) as client,
        connected(client) as silent,
        connected(client) as idle,
        connected(client) as slow_head,
        connected(client) as slow_body,
        connected(client) as after_refusal,
    ):
        # All begin before the first wait: a connection without a request ends without a response.
        slow_head.writer.write(b"GET /hea")
        slow_body.writer.write(head(b"Content-Length: 10000"))
        idle.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # A body that is too large is refused at once and discarded for a while.
        after_refusal.writer.write(head(b"Content-Length: 1000000000") + b"x")
        # Read as they arrive: a connection that is reset later has no response any more.
        answers = [asyncio.create_task(each.answer()) for each in (slow_head, slow_body)]
        assert (await idle.reader.readuntil(b"}")).startswith(b"HTTP/1.1 200 ")
        assert (await after_refusal.reader.readuntil(b"}")).startswith(b"HTTP/1.1 413 ")

        async def drip() -> None:
            while True:
                slow_head.writer.write(b"x")
                slow_body.writer.write(b" ")
                after_refusal.writer.write(b"x" * 10_000)
                await asyncio.sleep(0.2)

        dripping = asyncio.create_task(drip())
        assert await silent.is_disconnected()
        assert await idle.is_disconnected()
        assert await after_refusal.is_disconnected()
        assert (await answers[0])[0] == 408
        status, problem = await answers[1]
        assert (status, problem["type"]) == (408, "urn:headwater:problem:request-timeout")
        dripping.cancel()
        assert 'route="/ingest/{event_type}",status="408"' in (await client.get("/metrics")).text


async def test_a_client_that_does_not_read_the_response_is_disconnected(
    make_store: MakeStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(http={"transfer_timeout": 2})
    async with serving(store, worker=False) as client:
        _, writer = await asyncio.open_connection(
            client.base_url.host, client.base_url.port, limit=1
        )
        request = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\nX-API-Key: %s\r\n\r\n"
        writer.write(request % KEY.encode() * 500)

        async def is_disconnected() -> bool:
            return writer.is_closing() or "slow client disconnected" in capsys.readouterr().err

        await wait_until(is_disconnected)
        assert (await client.get("/healthz")).status_code == 200
        writer.transport.abort()


LIMITS = TimeLimits(idle=30, head=10, transfer=20, rate=1_000)


@pytest.mark.parametrize(
    ("rate", "ticks"),
    [(0, 20), (500, 40), (999, None), (1_000, None), (1_000_000, None)],
)
def test_a_body_may_be_as_slow_as_the_minimum_rate(rate: int, ticks: int | None) -> None:
    deadline = ConnectionDeadline(LIMITS)
    passed = (n for n in range(100) if deadline.has_passed(n, Phase.BODY, 1, n * rate))
    assert next(passed, None) == ticks


def test_a_fast_beginning_does_not_allow_a_longer_pause() -> None:
    deadline = ConnectionDeadline(LIMITS)
    deadline.has_passed(0, Phase.BODY, 1, 0)
    assert not deadline.has_passed(1, Phase.BODY, 1, 1 << 30)
    assert not deadline.has_passed(20, Phase.BODY, 1, 1 << 30)
    assert deadline.has_passed(21, Phase.BODY, 1, 1 << 30)


def test_each_request_of_a_connection_has_its_own_deadline() -> None:
    deadline = ConnectionDeadline(LIMITS)
    for tick in range(0, 300, 9):
        assert not deadline.has_passed(tick, Phase.HEAD, tick, 0)
    assert not deadline.has_passed(1_000, Phase.RUNNING, 1, 0)
    assert not deadline.has_passed(1_000_000, Phase.RUNNING, 1, 0)
