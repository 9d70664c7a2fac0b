"""The shared connection when a call cannot be sent, is slow, or reaches a replica."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest

from headwater.backends.redis import connection as connection_module
from headwater.backends.redis.address import Address
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.connection import open_connection
from headwater.backends.redis.errors import LostError
from headwater.errors import BackendUnavailableError
from tests.backends.redis.test_connection import OK, pretending
from tests.engine.support import until
from tests.servers import valkey_node


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    """A client of a separate server."""
    with valkey_node() as port:
        client = Redis(f"redis://127.0.0.1:{port}/0", timeout=60, connect_timeout=60)
        await client.open()
        yield client
        await client.close()


async def test_an_argument_that_cannot_be_sent_fails_its_own_call_alone(redis: Redis) -> None:
    with pytest.raises(UnicodeEncodeError):
        await redis.call(command("k", "ECHO", "\ud800"))
    assert await redis.call(command("k", "ECHO", "mine")) == b"mine"


async def test_a_close_that_is_cancelled_leaves_no_caller_waiting(redis: Redis) -> None:
    (connection,) = redis.connections.values()
    connection.transport.pause_reading()
    caller = asyncio.create_task(redis.call(command("k", "PING")))
    await asyncio.sleep(0)
    closing = asyncio.create_task(redis.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    with pytest.raises(LostError):
        await asyncio.wait_for(caller, 60)


async def test_a_server_that_stopped_being_a_master_is_reconnected(redis: Redis) -> None:
    first = await redis.call(command("k", "CLIENT", "ID"))
    await redis.call(command("k", "REPLICAOF", "127.0.0.1", 1))
    with pytest.raises(BackendUnavailableError, match="READONLY"):
        await redis.call(command("k", "SET", "k", 1))
    assert await redis.call(command("k", "CLIENT", "ID")) != first
    await redis.call(command("k", "REPLICAOF", "NO", "ONE"))
    assert await redis.call(command("k", "SET", "k", 1)) == b"OK"


async def test_a_large_answer_may_take_longer_as_long_as_more_of_it_comes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = SimpleNamespace(now=0.0)
    clock.monotonic = lambda: clock.now
    monkeypatch.setattr(connection_module, "time", clock)
    parts: asyncio.Queue[bytes] = asyncio.Queue()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"headwater\r\n")
        writer.write(OK)
        await reader.readuntil(b"large\r\n")
        while part := await parts.get():
            writer.write(part)
        await reader.read()

    async with pretending(handle) as port:
        connection = await open_connection(Address("127.0.0.1", port), 60, 60)
        large = asyncio.create_task(connection.calls([["GET", "large"]]))
        # Each part comes in time, and all of them take several times as long.
        for part in [b"$8\r\n", *[b"x"] * 8]:
            clock.now += 50
            parts.put_nowait(part)
            await until(lambda: connection._heard_at == clock.now)  # noqa: SLF001
            connection._check()  # noqa: SLF001 - as its timer does
        parts.put_nowait(b"\r\n")
        parts.put_nowait(b"")
        assert await large == [b"x" * 8]
        connection.close()


async def test_an_unsolicited_reply_closes_the_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"headwater\r\n")
        writer.write(OK + b"-ERR unasked\r\n")
        await reader.read()

    async with pretending(handle) as port:
        connection = await open_connection(Address("127.0.0.1", port), 60, 60)
        await connection.closed
        with pytest.raises(LostError, match="unexpected reply"):
            await connection.calls([["PING"]])
