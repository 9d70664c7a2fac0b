"""Finding the servers of a cluster: several addresses in the URL, and servers without a name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import redis as peer

from headwater.backends.redis.client import Redis, command
from headwater.errors import BackendUnavailableError, ConfigError
from tests.backends.redis.test_connection import pretending

SOME = [str(number) for number in range(50)]


@asynccontextmanager
async def opened(*ports: int) -> AsyncIterator[Redis]:
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    client = Redis(f"redis://{hosts}/0", timeout=60, connect_timeout=60)
    try:
        await client.open()
        yield client
    finally:
        await client.close()


@pytest.fixture
def ports(cluster_url: str) -> list[int]:
    """The ports of all masters, the one in the URL first."""
    with peer.Redis.from_url(cluster_url) as seed:
        ranges = seed.execute_command("CLUSTER SLOTS")
    first = urlsplit(cluster_url).port
    return sorted((node[1] for _, _, node, *_ in ranges), key=lambda port: port != first)


@pytest.fixture
def _endpoint_type(request: pytest.FixtureRequest, ports: list[int]) -> Iterator[None]:
    """Let all masters tell clients the addresses of the others in another way."""
    setting = "cluster-preferred-endpoint-type"
    for chosen in (request.param, "ip"):
        for port in ports:
            with peer.Redis(port=port) as master:
                master.config_set(setting, chosen)
        if chosen != "ip":
            yield


async def use_all(client: Redis) -> None:
    """Send a command to every master."""
    replies = await client.calls([command(key, "EXISTS", key) for key in SOME])
    assert replies == [0] * len(SOME)


async def test_one_dead_seed_does_not_matter(ports: list[int]) -> None:
    async with opened(1, ports[0]) as client:
        await use_all(client)


async def test_one_silent_seed_does_not_matter(ports: list[int]) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with (
        pretending(handle) as silent,
        asyncio.timeout(30),
        opened(silent, ports[0]) as client,
    ):
        await use_all(client)


async def test_dead_seeds_are_named() -> None:
    with pytest.raises(
        BackendUnavailableError,
        match=r"127\.0\.0\.1:([12]) could not .*; tried also 127\.0\.0\.1:[12]$",
    ):
        async with opened(1, 2):
            pass


async def test_several_servers_must_be_in_a_cluster(redis_url: str) -> None:
    port = urlsplit(redis_url).port or 6379
    with pytest.raises(ConfigError, match=rf"names 2 servers, but .*:{port} is not in a cluster"):
        async with opened(1, port):
            pass


@pytest.mark.usefixtures("_endpoint_type")
@pytest.mark.parametrize("_endpoint_type", ["unknown-endpoint", "hostname"], indirect=True)
async def test_a_master_without_a_known_name_is_where_we_asked(ports: list[int]) -> None:
    async with opened(ports[0]) as client:
        await use_all(client)
        assert {str(address) for address in client.connections} == {
            f"127.0.0.1:{port}" for port in ports
        }


async def test_an_error_names_the_server_that_answered(ports: list[int]) -> None:
    async with opened(ports[0]) as client:
        with peer.Redis(port=ports[1]) as full:
            full.config_set("maxmemory", 1)
            try:
                with pytest.raises(BackendUnavailableError, match=f":{ports[1]} refused: OOM"):
                    await client.calls([command(key, "SET", key, 1) for key in SOME])
            finally:
                full.config_set("maxmemory", 0)
        await client.calls([command(key, "DEL", key) for key in SOME])
