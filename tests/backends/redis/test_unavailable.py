"""Errors of a server that cannot serve at present: retried, never the fault of a handler."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest
import redis as peer
from redis.crc import key_slot

from headwater.backends.redis.address import Address
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.errors import refused
from headwater.errors import BackendError, BackendUnavailableError
from tests.backends.redis.test_connection import pretending
from tests.engine.support import until
from tests.servers import Machine, valkey_machine, valkey_node

FOREVER = "while true do end"
SERVE_NO_STALE_DATA = ("--replica-serve-stale-data", "no")

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A server whose settings a test may change and change back."""
    with valkey_machine("--busy-reply-threshold", "1", *SERVE_NO_STALE_DATA) as machine:
        yield machine


@pytest.fixture
def ask(machine: Machine) -> Iterator[Ask]:
    """Send commands to the server as its operator."""
    with operator(machine.port) as ask:
        yield ask


@contextmanager
def operator(port: int) -> Iterator[Ask]:
    with peer.Redis(port=port) as client:
        yield client.execute_command


@asynccontextmanager
async def opened(port: int, user: str = "") -> AsyncIterator[Redis]:
    client = Redis(f"redis://{user}127.0.0.1:{port}", timeout=30, connect_timeout=30)
    try:
        await client.open()
        yield client
    finally:
        await client.close()


@contextmanager
def unavailable(port: int, *said: str) -> Iterator[None]:
    """Expect that the server is unavailable, for this reason and with its address."""
    with pytest.raises(BackendUnavailableError) as caught:
        yield
    for text in (f"127.0.0.1:{port}", *said):
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "bad", "good", "said"),
    [
        ("min-replicas-to-write", 1, 0, ("NOREPLICAS", "INFO replication")),
        ("maxmemory", 1, 0, ("OOM", "give it more")),
    ],
)
async def test_a_server_that_accepts_no_writes_is_unavailable(
    machine: Machine, ask: Ask, setting: str, bad: int, good: int, said: tuple[str, ...]
) -> None:
    async with opened(machine.port) as redis:
        ask("CONFIG", "SET", setting, bad)
        with unavailable(machine.port, *said):
            await redis.call(command("k", "SET", "k", 1))
        with unavailable(machine.port, *said):
            await redis.calls([command(key, "SET", key, 1) for key in "ab"], as_one=True)
        ask("CONFIG", "SET", setting, good)
        await redis.call(command("k", "SET", "k", 1))


async def test_a_server_that_cannot_write_to_its_disk_is_unavailable() -> None:
    with valkey_machine("--save", "3600 1000000") as machine, operator(machine.port) as ask:
        folder = machine.log.parent
        async with opened(machine.port) as redis:
            folder.chmod(0o500)
            try:
                ask("BGSAVE")
                await until(lambda: ask("INFO")["rdb_last_bgsave_status"] == "err")
                with unavailable(machine.port, "MISCONF", "see its log"):
                    await redis.call(command("k", "SET", "k", 1))
            finally:
                folder.chmod(0o700)


async def until_refused(redis: Redis, reply: str) -> None:
    """Wait until the server refuses a command with this reply."""

    async def is_refused() -> bool:
        try:
            await redis.call(command("k", "GET", "k"))
        except BackendUnavailableError as error:
            return f"refused: {reply}" in str(error)
        return False

    await until(is_refused)


async def test_a_server_that_runs_a_long_script_is_unavailable(machine: Machine, ask: Ask) -> None:
    async with opened(machine.port) as redis, opened(machine.port) as other:
        script = asyncio.create_task(other.call(command("k", "EVAL", FOREVER, 0)))
        await until_refused(redis, "BUSY")
        with unavailable(machine.port, "BUSY", "SCRIPT KILL"):
            async with opened(machine.port):
                pass
        ask("SCRIPT", "KILL")
        with unavailable(machine.port, "Script killed by user", "changed nothing"):
            await script
        await redis.call(command("k", "GET", "k"))


async def test_a_server_that_loads_its_data_is_unavailable() -> None:
    slow = ("--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
    with valkey_node("--enable-debug-command", "yes", *slow) as port, operator(port) as ask:
        ask("DEBUG", "POPULATE", 1_000)
        async with opened(port) as redis, opened(port) as other:
            loading = asyncio.create_task(other.call(command("k", "DEBUG", "RELOAD")))
            await until_refused(redis, "LOADING")
            ask("CONFIG", "SET", "key-load-delay", 0)
            await loading


async def test_a_server_with_too_many_clients_is_unavailable(machine: Machine, ask: Ask) -> None:
    ask("CONFIG", "SET", "maxclients", 1)
    try:
        with unavailable(machine.port):
            async with opened(machine.port):
                pass
    finally:
        ask("CONFIG", "SET", "maxclients", 10_000)
    async with opened(machine.port):
        pass


async def test_a_server_that_says_it_is_full_before_it_is_asked_is_quoted() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"-ERR max number of clients reached\r\n")
        await reader.read()

    async with pretending(handle) as port:
        with unavailable(port, "max number of clients reached; raise its maxclients"):
            async with opened(port):
                pass


async def test_a_server_that_wants_a_password_is_unavailable(machine: Machine, ask: Ask) -> None:
    async with opened(machine.port) as redis:
        ask("CONFIG", "SET", "requirepass", "secret")
        try:
            (connection,) = redis.connections.values()
            connection.close()
            with unavailable(machine.port, "NOAUTH", "redis.url must carry its password"):
                await redis.call(command("k", "GET", "k"))
            with unavailable(machine.port, "WRONGPASS", "correct the user and the password"):
                async with opened(machine.port, ":wrong@"):
                    pass
            async with opened(machine.port, ":secret@"):
                pass
        finally:
            ask("CONFIG", "SET", "requirepass", "")
        await redis.call(command("k", "GET", "k"))


async def test_a_server_that_denies_permission_is_unavailable(machine: Machine, ask: Ask) -> None:
    ask("ACL", "SETUSER", "limited", "on", "nopass", "~*", "&*", "+@all", "-set")
    async with opened(machine.port, "limited@") as redis:
        with unavailable(machine.port, "NOPERM", "headwater doctor grants --print"):
            await redis.call(command("k", "SET", "k", 1))
        with unavailable(machine.port, "ACL failure in script", "headwater doctor grants --print"):
            await redis.call(command("k", "EVAL", "return redis.call('SET', KEYS[1], 1)", 1, "k"))


async def test_a_replica_is_unavailable(machine: Machine, ask: Ask) -> None:
    async with opened(machine.port) as redis:
        ask("REPLICAOF", "127.0.0.1", 1)
        with unavailable(machine.port, "MASTERDOWN", "has lost its master"):
            await redis.call(command("k", "GET", "k"))
        ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
        with unavailable(machine.port, "READONLY", "must name the master"):
            await redis.call(command("k", "SET", "k", 1))
        ask("REPLICAOF", "NO", "ONE")
        ask("CONFIG", "SET", "replica-serve-stale-data", "no")
        await redis.call(command("k", "SET", "k", 1))


async def test_a_cluster_without_a_master_for_a_slot_is_unavailable() -> None:
    with valkey_node("--cluster-enabled", "yes") as port, operator(port) as ask:
        ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)
        await until(lambda: ask("CLUSTER INFO")["cluster_state"] == "ok")
        async with opened(port) as redis:
            await redis.call(command("k", "SET", "k", 1))
            ask("CLUSTER", "DELSLOTSRANGE", 0, 16_383)
            with unavailable(port, "CLUSTERDOWN", "see `CLUSTER INFO` there"):
                await redis.call(command("k", "GET", "k"))
            with unavailable(port, "has slot", "see `CLUSTER INFO` there"):
                await redis.call(command("k", "GET", "k"))
            ask("CLUSTER", "ADDSLOTSRANGE", 0, 16_383)

            async def is_back() -> bool:
                try:
                    return bool(await redis.call(command("k", "GET", "k")) == b"1")
                except BackendUnavailableError:
                    return False

            await until(is_back)


async def test_a_slot_on_the_move_is_unavailable(cluster_url: str) -> None:
    one, other = "{moving}:one", "{moving}:other"
    client = Redis(cluster_url, timeout=30, connect_timeout=30)
    await client.open()
    await client.call(command(one, "SET", one, 1))
    slot = key_slot(one.encode())
    with peer.Redis.from_url(cluster_url) as seed:
        ranges = seed.execute_command("CLUSTER SLOTS")
    (home,) = [node for first, last, node, *_ in ranges if first <= slot <= last]
    target = next(node for _, _, node, *_ in ranges if node != home)
    with operator(home[1]) as ask:
        ask("CLUSTER", "SETSLOT", slot, "MIGRATING", target[2])
        try:
            with unavailable(home[1], "TRYAGAIN", "the cluster is moving slots"):
                await client.call(command(one, "MGET", one, other))
        finally:
            ask("CLUSTER", "SETSLOT", slot, "STABLE")
            ask("DEL", one)
    await client.close()


@pytest.mark.parametrize(
    "reply",
    [
        "DENIED Redis is running in protected mode",
        "EXECABORT Transaction discarded because of: OOM command not allowed",
        "MOVED 1 127.0.0.1:1",
        "ASK 1 127.0.0.1:1",
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "BUSY",
    ],
)
def test_replies_that_depend_on_the_server_alone_are_errors_of_the_server(reply: str) -> None:
    error = refused(Address("db", 6379), reply)
    assert isinstance(error, BackendUnavailableError)
    assert str(error).startswith(f"Redis at db:6379 refused: {reply}; ")


@pytest.mark.parametrize(
    "reply", ["ERR unknown command", "WRONGTYPE Operation", "BUSYGROUP exists", "NOSCRIPT none"]
)
def test_replies_that_depend_on_the_command_are_errors_of_the_caller(reply: str) -> None:
    assert type(refused(Address("db", 6379), reply)) is BackendError
