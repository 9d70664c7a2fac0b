"""A store whose Redis is found by Sentinels, and its failovers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.address import Address, parse_url
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.connection import RedisConnection
from headwater.backends.redis.sentinels import _Sentinel
from headwater.core import credentials
from headwater.core.masking import FileText
from headwater.engine.worker.worker import Worker
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.settings.schema import Settings
from headwater.settings.servers import RedisSettings, SentinelSettings, TlsSettings
from tests.engine.support import until
from tests.sentinels import NAME, Watched, ask, wait_until, watched
from tests.servers import sentinel_machine
from tests.tls import Authority, TlsProxy, server_context

pytestmark = pytest.mark.chaos

DOCUMENTED_RIGHTS = (
    *("+sentinel|master", "+sentinel|get-master-addr-by-name", "+subscribe", "&+switch-master"),
    *("+client|setname", "+ping"),
)
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def servers() -> Iterator[Watched]:
    with watched(*DURABLE) as servers:
        yield servers


@asynccontextmanager
async def connected(servers: Watched, patience: float = 2.0) -> AsyncIterator[Redis]:
    client = Redis.of(RedisSettings(url=servers.url, timeout=patience, connect_timeout=patience))
    try:
        await client.open()
        yield client
    finally:
        await client.close()


def test_an_address_names_sentinels_and_the_master() -> None:
    assert parse_url("redis+sentinel://me:p@one,two:7000/shop?db=2") == [
        Address("one", 26379, "", "me", "p", 2, master="shop"),
        Address("two", 7000, "", "me", "p", 2, master="shop"),
    ]
    assert parse_url("rediss+sentinel://one/shop")[0].secure
    with pytest.raises(ConfigError, match="must name the master"):
        parse_url("redis+sentinel://one,two")


async def test_a_sentinel_without_its_scheme_is_named(servers: Watched) -> None:
    port = servers.sentinels[0].port
    client = Redis(f"redis://127.0.0.1:{port}", timeout=60, connect_timeout=60)
    with pytest.raises(ConfigError, match=r"redis\+sentinel://"):
        await client.open()
    await client.close()


async def test_an_unknown_name_and_missing_sentinels_are_named(servers: Watched) -> None:
    url = servers.url.replace(NAME, "ship")
    client = Redis(url, timeout=5, connect_timeout=5)
    with pytest.raises(BackendUnavailableError, match="no Sentinel knows where 'ship' is"):
        await client.open()
    await client.close()
    client = Redis("redis+sentinel://127.0.0.1:1/shop", timeout=5, connect_timeout=5)
    with pytest.raises(BackendUnavailableError, match=r"127\.0\.0\.1:1 could not be reached"):
        await client.open()
    await client.close()


async def test_one_sentinel_of_three_may_be_missing(servers: Watched) -> None:
    servers.sentinels[0].kill()
    async with connected(servers) as client:
        assert await client.call(command("k", "INCR", "k")) == 1


async def test_one_sentinel_of_three_is_not_believed(servers: Watched) -> None:
    for sentinel in servers.sentinels[1:]:
        sentinel.kill()
    with pytest.raises(BackendUnavailableError, match="only 1 of 3 Sentinels know where 'shop' is"):
        async with connected(servers):
            pass


async def test_sentinels_have_their_own_user(servers: Watched) -> None:
    for sentinel in servers.sentinels:
        ask(sentinel, "ACL SETUSER", "app", "on", ">s3cret", *DOCUMENTED_RIGHTS)
        ask(sentinel, "ACL SETUSER", "default", "off")
    own = SentinelSettings(username="app", password="s3cret")
    settings = RedisSettings(url=servers.url, timeout=5, connect_timeout=5, sentinel=own)
    client = Redis.of(settings)
    await client.open()
    for address in parse_url(servers.url):
        own_view = _Sentinel(address, settings)
        subscribed = await own_view.subscribe("+switch-master", print)
        assert await subscribed.calls([["PING"]]) == [[b"pong", b""]]
        subscribed.close()
    await client.close()
    with pytest.raises(BackendUnavailableError, match="NOAUTH"):
        await Redis(servers.url, timeout=5, connect_timeout=5).open()


async def test_a_file_of_the_password_of_sentinels_may_be_missing_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "_LOOK_SECONDS", 0.05)
    file = tmp_path / "password"
    file.write_text("second")
    own = SentinelSettings(username="app", password=FileText.of("first", file))
    with sentinel_machine() as machine:
        ask(machine, "ACL SETUSER", "app", "on", ">second", *DOCUMENTED_RIGHTS)
        settings = RedisSettings(timeout=30, connect_timeout=30, sentinel=own)
        sentinel = _Sentinel(Address("127.0.0.1", machine.port), settings)
        assert await sentinel.ask(["PING"]) == [b"PONG"]
        file.unlink()
        for _ in range(20):
            await asyncio.sleep(0.01)
            assert await sentinel.ask(["PING"]) == [b"PONG"]


async def test_sentinels_may_be_encrypted_while_redis_is_not(
    servers: Watched, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("worker")
    context = server_context(authority.issue("sentinel", "127.0.0.1"), authority.file)
    tls = TlsSettings(str(authority.file), str(own.cert), str(own.key))
    with ExitStack() as proxies:
        ports = [
            proxies.enter_context(TlsProxy(context, sentinel.port).open())
            for sentinel in servers.sentinels
        ]
        hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
        settings = RedisSettings(
            url=f"redis+sentinel://{hosts}/{NAME}",
            timeout=30,
            connect_timeout=30,
            sentinel=SentinelSettings(encrypted="yes", tls=tls),
        )
        client = Redis.of(settings)
        await client.open()
        assert await client.call(command("k", "PING")) == b"PONG"
        await client.close()


async def test_an_encrypted_master_is_followed_through_a_failover(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    own = authority.issue("worker")
    context = server_context(authority.issue("redis", "127.0.0.1"), authority.file)
    # Sentinels and replicas come without TLS to the same ports.
    proxies = [TlsProxy(context, accepts_plain=True) for _ in range(2)]
    with ExitStack() as running:
        for proxy in proxies:
            running.enter_context(proxy.open())
        servers = running.enter_context(watched(*DURABLE, proxies=proxies))
        settings = RedisSettings(
            url=servers.url.replace("redis+", "rediss+"),
            timeout=5,
            connect_timeout=5,
            tls=TlsSettings(str(authority.file), str(own.cert), str(own.key)),
            sentinel=SentinelSettings(encrypted="no"),
        )
        client = Redis.of(settings)
        await client.open()
        await client.call(command("k", "SET", "k", "before"))
        assert (proxies[0].names, proxies[1].names) == (["worker"], [])
        servers.servers[0].kill()

        async def is_written() -> bool:
            with suppress(BackendUnavailableError):
                await client.call(command("k", "SET", "k", "after"))
                return True
            return False

        await until(is_written)
        await client.close()
        assert ask(servers.servers[1], "GET", "k") == b"after"
        assert set(proxies[1].names) == {"worker"}


async def test_a_frozen_master_that_wakes_up_is_never_written_to(servers: Watched) -> None:
    # Longer than the failover: the connection to the old master would outlive it.
    async with connected(servers, patience=60) as client:
        await client.call(command("k", "SET", "k", "before"))
        old = servers.master()
        old.freeze()
        pending = asyncio.create_task(client.call(command("k", "SET", "k", "unknown")))
        await until(lambda: servers.master() is not old)

        async def write() -> bool:
            try:
                await client.call(command("k", "SET", "k", "after"))
            except BackendUnavailableError:
                return False
            return True

        await until(write)
        old.thaw()
        with pytest.raises(BackendUnavailableError):
            await pending
        for _ in range(200):
            await client.call(command("k", "INCR", "count"))
        assert ask(servers.master(), "GET", "k") == b"after"
        assert ask(servers.master(), "GET", "count") == b"200"
        # Sentinels make it a replica only seconds later; until then it would take every write.
        assert ask(old, "GET", "count") in (None, b"200")


async def test_a_master_that_is_replaced_while_it_is_connected_to_is_not_used(
    servers: Watched,
) -> None:
    named: set[int] = set()
    is_opening, may_go_on = asyncio.Event(), asyncio.Event()

    class Client(Redis):
        def _move_to(self, host: str, port: int) -> None:
            super()._move_to(host, port)
            named.add(port)

        async def _check_master(self, connection: RedisConnection) -> None:
            await super()._check_master(connection)
            is_opening.set()
            await may_go_on.wait()

    client = Client.of(RedisSettings(url=servers.url, timeout=60, connect_timeout=60))
    old = servers.master()
    (new,) = (server for server in servers.servers if server is not old)
    opening = asyncio.create_task(client.open())
    await is_opening.wait()
    await until(lambda: old.port in named)  # the Sentinels are listened to
    old.freeze()
    await until(lambda: new.port in named)
    old.thaw()
    may_go_on.set()
    with pytest.raises(BackendUnavailableError, match="was replaced as the master"):
        await opening
    assert client.connections == {}

    async def is_written() -> bool:
        # Sentinels learn of a failover one after another.
        with suppress(BackendUnavailableError):
            await client.call(command("k", "SET", "k", "after"))
        return bool(ask(new, "GET", "k") == b"after")

    await until(is_written)
    await client.close()


async def test_a_replica_that_a_sentinel_names_is_refused(servers: Watched) -> None:
    replica = next(server for server in servers.servers if server is not servers.master())
    directives = (f"sentinel monitor {NAME} 127.0.0.1 {replica.port} 1",)
    with sentinel_machine(*directives) as stale:
        await until(lambda: bool(ask(stale, "PING")))
        url = f"redis+sentinel://127.0.0.1:{stale.port}/{NAME}"
        client = Redis(url, timeout=5, connect_timeout=5)
        with pytest.raises(BackendUnavailableError, match="is a replica"):
            await client.open()
        await client.close()


async def test_a_master_that_answers_that_it_is_read_only_is_left() -> None:
    # An hour, so that Sentinels neither act nor announce anything.
    with watched(*DURABLE, down_after=3_600_000) as servers:
        master, replica = servers.servers
        async with connected(servers, patience=60) as client:
            assert await client.call(command("k", "INCR", "k")) == 1
            (connection,) = client.connections.values()
            ask(master, "REPLICAOF", "127.0.0.1", replica.port)
            with pytest.raises(BackendUnavailableError, match="it is a replica"):
                await client.call(command("k", "INCR", "k"))
            assert not connection.alive
            # The Sentinels still name it, and its role says that it takes no writes.
            with pytest.raises(BackendUnavailableError, match="is a replica, though Sentinels"):
                await client.call(command("k", "INCR", "k"))
            assert client.connections == {}
            ask(master, "REPLICAOF", "NO", "ONE")
            assert await client.call(command("k", "INCR", "k")) == 2


async def test_no_acknowledged_event_is_lost_when_the_master_is_killed(
    servers: Watched, production: Settings
) -> None:
    settings = production.replace(
        partitions=4,
        redis={"url": servers.url, "timeout": 2, "connect_timeout": 2},
        worker={"lease_ttl": 2},
    )
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        before: int = await store.get_feature("visits", user_id)
        return before + 1

    acknowledged = 0

    async def publish(number: int) -> None:
        nonlocal acknowledged
        name = f"user-{number % 7}"
        while True:
            try:
                await store.publish("visit", name, event_id=f"event-{number}")
            except BackendUnavailableError:
                await asyncio.sleep(0.05)
            else:
                acknowledged += 1
                return

    async def publish_all() -> None:
        for number in range(1_500):
            await publish(number)

    async with store:
        worker = Worker(store)
        working = asyncio.create_task(worker.run())
        publishing = asyncio.create_task(publish_all())
        await until(lambda: acknowledged > 400)
        old = servers.master()
        # What a replica does not have dies with its master, so it gets everything first.
        await asyncio.to_thread(ask, old, "CLIENT PAUSE", 30_000, "WRITE")
        await asyncio.to_thread(wait_until, lambda: _has_all(servers))
        await asyncio.to_thread(old.kill)
        await publishing

        async def total() -> bool:
            ids = [f"user-{number}" for number in range(7)]
            rows = await store.get_features(["visits"], ids)
            return bool(sum(row["visits"] for row in rows.values()) == 1_500)

        await until(total)
        assert servers.master() is not old
        worker.stop()
        await working


def _has_all(servers: Watched) -> bool:
    offsets = {
        ask(server, "INFO", "replication")["master_repl_offset"] for server in servers.servers
    }
    return len(offsets) == 1
