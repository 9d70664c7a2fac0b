"""TCP keep-alive of connections to servers, on both event loops."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from headwater.backends.postgres import connections, pool
from headwater.backends.postgres.connections import Connection
from headwater.backends.redis.client import Redis
from headwater.core.keep_alive import keep_alive
from headwater.settings.schema import Settings

Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.parametrize("run", [asyncio.run, uvloop.run])


def is_kept_alive(transport: asyncio.BaseTransport) -> bool:
    connected = transport.get_extra_info("socket")
    return bool(connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE))


def test_a_connection_to_redis_is_kept_alive(run: Run, redis_url: str) -> None:
    async def check() -> None:
        redis = Redis(redis_url, timeout=30, connect_timeout=30)
        await redis.open()
        (connection,) = redis.connections.values()
        assert is_kept_alive(connection.transport)
        await redis.close()

    run(check())


def test_connections_to_postgres_are_kept_alive(
    run: Run, production: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept_alive: list[bool] = []

    def observed(transport: asyncio.BaseTransport) -> None:
        keep_alive(transport)
        kept_alive.append(is_kept_alive(transport))

    async def use(connection: Connection) -> int:
        found: int = await connection.fetchval("SELECT 1")
        return found

    async def check() -> None:
        postgres = pool.Postgres(production.postgres)
        await postgres.run(use)
        await postgres.close()

    monkeypatch.setattr(connections, "keep_alive", observed)
    run(check())
    assert kept_alive == [True]


def test_a_local_socket_needs_no_keep_alive(run: Run) -> None:
    async def check() -> None:
        one, other = socket.socketpair(socket.AF_UNIX)
        transport, _ = await asyncio.get_running_loop().create_connection(
            asyncio.Protocol, sock=one
        )
        keep_alive(transport)
        transport.close()
        other.close()

    run(check())
