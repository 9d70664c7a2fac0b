"""The shared connection: replies in order, nothing sent twice, clear errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from headwater.backends.redis.address import Address, parse_url
from headwater.backends.redis.client import Redis, command, script_call
from headwater.backends.redis.connection import open_connection
from headwater.backends.redis.errors import LostError
from headwater.errors import BackendError, ClosedError, ConfigError
from tests.servers import valkey_node

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
PONG = b"+PONG\r\n"
OK = b"+OK\r\n"


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    client = Redis(redis_url, timeout=60, connect_timeout=60)
    await client.open()
    yield client
    await client.close()


@asynccontextmanager
async def pretending(handle: Handler) -> AsyncIterator[int]:
    """A server that replies as the test says and ends when its clients have left."""
    ends: list[asyncio.Future[None]] = []

    async def handle_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = asyncio.get_running_loop().create_future()
        ends.append(end)
        await handle(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
        end.set_result(None)

    server = await asyncio.start_server(handle_and_close, "127.0.0.1")
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*ends)


async def test_many_callers_share_a_connection_and_each_gets_its_own_answers(redis: Redis) -> None:
    answers = await asyncio.gather(
        *(redis.calls([command("k", "ECHO", n), command("k", "ECHO", -n)]) for n in range(500))
    )
    assert answers == [[str(n).encode(), str(-n).encode()] for n in range(500)]


async def test_an_error_is_its_callers_own(redis: Redis) -> None:
    bad = redis.call(command("k", "NOSUCHCOMMAND"))
    good = redis.call(command("k", "ECHO", "fine"))
    results = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(results[0], BackendError)
    assert results[1] == b"fine"


async def test_a_caller_that_gives_up_does_not_disturb_the_others(redis: Redis) -> None:
    given_up = asyncio.create_task(redis.call(command("k", "ECHO", "cancelled call")))
    await asyncio.sleep(0)
    given_up.cancel()
    assert await redis.call(command("k", "ECHO", "next")) == b"next"


async def test_scripts_that_a_server_has_forgotten_are_loaded_again(redis: Redis) -> None:
    await redis.call(command("k", "SCRIPT", "FLUSH"))
    listed = script_call("retire", ["test-wire:workers"], "w1", "test-wire:wake")
    assert await redis.call(listed) == 1


async def test_nothing_is_sent_twice_when_the_connection_breaks() -> None:
    received: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"headwater\r\n")
        writer.write(OK)
        received.append(await reader.readuntil(b"once\r\n"))

    async with pretending(handle) as port:
        connection = await open_connection(Address("127.0.0.1", port), 60, 60)
        with pytest.raises(LostError, match="was closed"):
            await connection.calls([["INCR", "once"]])
        with pytest.raises(LostError):
            await connection.calls([["INCR", "once"]])
    assert len(received) == 1


async def test_a_server_that_does_not_answer_in_time_is_given_up() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"headwater\r\n")
        writer.write(OK)
        await reader.read()

    async with pretending(handle) as port:
        # A test that is paused may already give up while it connects.
        with pytest.raises(LostError, match=r"no reply within 0\.1 s"):
            await (await open_connection(Address("127.0.0.1", port), 0.1, 60)).calls([["PING"]])


async def test_a_protocol_error_closes_the_connection() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"headwater\r\n")
        writer.write(OK + b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    async with pretending(handle) as port:
        connection = await open_connection(Address("127.0.0.1", port), 60, 60)
        with pytest.raises(LostError, match="invalid reply"):
            await connection.calls([["PING"]])


async def test_the_next_call_after_a_loss_uses_a_new_connection() -> None:
    with valkey_node() as port:
        client = Redis(f"redis://127.0.0.1:{port}", timeout=60, connect_timeout=60)
        await client.open()
        other = await open_connection(Address("127.0.0.1", port), 60, 60)
        await other.calls([["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]])

        async def answers() -> bool:
            try:
                return bool(await client.call(command("k", "PING")) == b"PONG")
            except LostError:
                return False

        assert await answers() or await answers()
        other.close()
        await client.close()


async def test_a_server_that_is_not_there_is_named_with_the_remedy() -> None:
    client = Redis("redis://127.0.0.1:1/0", timeout=60, connect_timeout=60)
    with pytest.raises(BackendError, match=r"127\.0\.0\.1:1 could not be reached.*redis\.url"):
        await client.open()


async def test_a_wrong_password_is_reported() -> None:
    with valkey_node("--requirepass", "secret") as port:
        for url in (f"redis://127.0.0.1:{port}", f"redis://:wrong@127.0.0.1:{port}"):
            with pytest.raises(BackendError, match=r"redis\.url"):
                await Redis(url, timeout=60, connect_timeout=60).open()
        client = Redis(f"redis://:secret@127.0.0.1:{port}/3", timeout=60, connect_timeout=60)
        await client.open()
        await client.close()
        with pytest.raises(ClosedError):
            await client.call(command("k", "PING"))


async def test_a_user_without_a_password_is_that_user() -> None:
    with valkey_node() as port:
        admin = Redis(f"redis://127.0.0.1:{port}", timeout=60, connect_timeout=60)
        await admin.open()
        await admin.call(command("k", "ACL", "SETUSER", "guest", "on", "nopass", "~*", "+@all"))
        client = Redis(f"redis://guest@127.0.0.1:{port}", timeout=60, connect_timeout=60)
        await client.open()
        assert await client.call(command("k", "ACL", "WHOAMI")) == b"guest"
        await client.close()
        await admin.close()


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://db", Address("db", 6379)),
        ("redis://guest@db", Address("db", 6379, "", "guest")),
        ("redis://", Address("localhost", 6379)),
        ("redis://:7000", Address("localhost", 7000)),
        ("redis://db?db=2", Address("db", 6379, database=2)),
        ("redis://[::1]:7000/1", Address("::1", 7000, database=1)),
        ("rediss://me:p%40ss@db:7000/2", Address("db", 7000, "", "me", "p@ss", 2, secure=True)),
        ("unix:///run/redis.sock?db=4", Address("localhost", 6379, "/run/redis.sock", "", "", 4)),
        ("valkey://:pass@db", Address("db", 6379, "", "", "pass")),
    ],
)
def test_addresses_are_read(url: str, address: Address) -> None:
    assert parse_url(url) == [address]


def test_an_address_may_name_several_servers() -> None:
    assert parse_url("redis://me:a,b@one:7000,two,[::1]:7002/1") == [
        Address("one", 7000, "", "me", "a,b", 1),
        Address("two", 6379, "", "me", "a,b", 1),
        Address("::1", 7002, "", "me", "a,b", 1),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "http://db",
        "db:6379",
        "redis://db/x",
        "redis://db:port",
        "redis://one,,two",
        "redis://[::1",
        "redis://a..b",
    ],
)
def test_invalid_addresses_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"redis\.url"):
        parse_url(url)


def test_several_urls_are_refused_with_the_form_for_several_hosts() -> None:
    with pytest.raises(ConfigError, match=r"several URLs; write the scheme.* once") as caught:
        parse_url("redis://a:1,redis://:hunter2@b:2")
    assert "hunter2" not in str(caught.value)


def test_an_unknown_option_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown option 'dbs': did you mean 'db'\?"):
        parse_url("redis://db?dbs=1")
    with pytest.raises(ConfigError, match=r"'socket_timeout'.*choose one of db.*redis\.timeout"):
        parse_url("redis://db/0?socket_timeout=5")


@pytest.mark.parametrize(
    "url", ["redis://:sec#ret@db", "redis://:sec/ret@db", "redis://:sec?ret@db"]
)
def test_a_message_about_an_address_does_not_show_its_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_url(url)
    assert "sec" not in str(caught.value)
    assert "percent-encoded" in str(caught.value)
