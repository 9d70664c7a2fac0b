"""A worker is woken or polls, even if its subscription fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from headwater import FeatureStore
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.notifications import Notifications
from headwater.errors import BackendError
from headwater.settings.schema import Settings
from tests.engine.support import PATIENCE_SECONDS, until
from tests.servers import valkey_node

CHANNEL = "test:wake"


@pytest.fixture
async def redis() -> AsyncIterator[Redis]:
    """A client of a separate server."""
    with valkey_node() as port:
        client = Redis(f"redis://127.0.0.1:{port}/0", timeout=60, connect_timeout=60)
        await client.open()
        yield client
        await client.close()


@pytest.fixture
async def notifications(redis: Redis) -> AsyncIterator[Notifications]:
    """A worker that listens."""
    listening = Notifications(redis, CHANNEL)
    listening.join("w1")
    assert await listening.wait("w1", PATIENCE_SECONDS)
    yield listening
    await listening.close()


async def test_a_read_during_a_resubscription_does_not_mark_a_partition_empty(
    redis: Redis, notifications: Notifications
) -> None:
    heard = notifications.token(0)
    await redis.call(command("k", "CLIENT", "KILL", "TYPE", "pubsub"))
    assert await notifications.wait("w1", PATIENCE_SECONDS)
    notifications.mark_empty(0, heard)
    assert not notifications.is_empty(0)


async def test_every_partition_is_read_again_regularly_despite_frequent_notifications(
    redis: Redis, notifications: Notifications
) -> None:
    notifications.mark_empty(0, notifications.token(0))

    async def is_looked_at(seconds: float) -> bool:
        await redis.call(command("k", "PUBLISH", CHANNEL, 1))
        await notifications.wait("w1", seconds)
        return not notifications.is_empty(0)

    assert not await is_looked_at(600)
    await until(lambda: is_looked_at(0.5))


class Between:
    """Forward bytes between clients and a server, until it is muted."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.subscribed: list[asyncio.StreamWriter] = []
        self.silent: set[asyncio.StreamWriter] = set()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        answers, server = await asyncio.open_connection("127.0.0.1", self._port)
        back = asyncio.create_task(self._pass(answers, client, client))
        await self._pass(reader, server, client)
        server.close()
        await back
        client.close()
        for writer in (server, client):
            with suppress(ConnectionError):
                await writer.wait_closed()
        self.connections -= 1

    async def _pass(
        self, source: asyncio.StreamReader, to: asyncio.StreamWriter, client: asyncio.StreamWriter
    ) -> None:
        while data := await source.read(65_536):
            if b"SUBSCRIBE" in data:
                self.subscribed.append(client)
            if client not in self.silent:
                to.write(data)


async def test_a_subscription_that_went_silent_is_noticed_and_renewed(redis: Redis) -> None:
    (address,) = redis.connections
    between = Between(address.port)
    proxy = await asyncio.start_server(between.serve, "127.0.0.1")
    port = proxy.sockets[0].getsockname()[1]
    far = Redis(f"redis://127.0.0.1:{port}/0", timeout=60, connect_timeout=60)
    await far.open()
    far.timeout = 0.3
    notifications = Notifications(far, CHANNEL)
    notifications.join("w1")
    assert await notifications.wait("w1", PATIENCE_SECONDS)
    before = len(between.subscribed)
    between.silent.update(between.subscribed)
    await until(lambda: len(between.subscribed) > before)
    assert await notifications.wait("w1", PATIENCE_SECONDS)
    await notifications.close()
    await far.close()
    await until(lambda: not between.connections)
    proxy.close()


async def test_a_message_without_a_partition_signals_a_change_of_workers(
    redis: Redis, notifications: Notifications
) -> None:
    await redis.call(command("k", "PUBLISH", CHANNEL, "what?"))
    assert await notifications.wait("w1", PATIENCE_SECONDS)


async def test_missing_permission_for_the_channel_is_an_error_when_the_store_opens(
    redis: Redis, production: Settings
) -> None:
    url = await without_channels(redis)
    store = FeatureStore(settings=production.replace(redis={"url": url}))
    with pytest.raises(BackendError, match=r"NOPERM.*doctor grants --print"):
        await store.open()


async def test_a_client_that_may_not_subscribe_waits_before_it_retries(redis: Redis) -> None:
    client = Redis(await without_channels(redis), timeout=60, connect_timeout=60)
    await client.open()
    with pytest.raises(BackendError, match="NOPERM"):
        await client.subscribe(CHANNEL, print)

    async def connections() -> int:
        info = await redis.call(command("k", "INFO", "stats"))
        return int(info.partition(b"total_connections_received:")[2].split()[0])

    before, began = await connections(), time.monotonic()
    notifications = Notifications(client, CHANNEL)
    notifications.join("w1")

    async def tried_thrice() -> bool:
        return await connections() >= before + 3

    await until(tried_thrice)
    assert time.monotonic() - began >= 1.0
    await notifications.close()
    await client.close()


async def without_channels(redis: Redis) -> str:
    (address,) = redis.connections
    rights = ("on", ">secret", "~*", "+@all", "resetchannels")
    await redis.call(command("k", "ACL", "SETUSER", "app", *rights))
    return f"redis://app:secret@127.0.0.1:{address.port}/0"
