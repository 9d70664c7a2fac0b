"""A Postgres and its synchronous replica, which takes over when the primary is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import asyncpg

from chaos.waiting import until
from tests.servers import Machine, follow, promote

_IN_SYNC_WITHIN_SECONDS = 60.0
# Without a replica that has each write, a failover would lose some that were acknowledged.
_SYNCHRONOUS = "ALTER SYSTEM SET synchronous_standby_names = '*'"
_RECONNECT = "ALTER SYSTEM SET wal_retrieve_retry_interval = '200ms'"
_IS_IN_SYNC = "SELECT count(*) > 0 FROM pg_stat_replication WHERE sync_state = 'sync'"


class PostgresPair:
    """The primary, and the replica that has every write that the primary has acknowledged."""

    def __init__(self, url: str, primary: Machine, replica: Machine) -> None:
        self._url = url
        self.primary = primary
        self._replica = replica

    async def connect_replica(self) -> None:
        """Wait until the replica has all writes, and let none be acknowledged without it."""
        async with self._asking() as connection:
            await connection.execute(_SYNCHRONOUS)
            await connection.execute("SELECT pg_reload_conf()")

            async def is_in_sync() -> bool:
                return bool(await connection.fetchval(_IS_IN_SYNC))

            if not await until(is_in_sync, _IN_SYNC_WITHIN_SECONDS):
                raise TimeoutError("the replica of Postgres did not get all writes in time")

    async def fail_over(self, seconds: float) -> None:
        """Kill the primary, promote its replica, and start the killed one as the new replica."""
        await self.connect_replica()
        await asyncio.to_thread(self.primary.kill)
        await asyncio.sleep(seconds)
        self.primary, self._replica = self._replica, self.primary
        url = self._url_of(self.primary)
        await promote(url)
        await asyncio.to_thread(follow, self._replica, url)
        await self.connect_replica()

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self._url_of(self.primary))
        try:
            yield connection
        finally:
            await connection.close()

    def _url_of(self, machine: Machine) -> str:
        parts = urlsplit(self._url)
        user = parts.netloc.rpartition("@")[0]
        return parts._replace(netloc=f"{user}@127.0.0.1:{machine.port}").geturl()


async def prepare(url: str) -> None:
    """Let replicas that are copied from a primary look for it often."""
    connection = await asyncpg.connect(url)
    await connection.execute(_RECONNECT)
    await connection.close()
