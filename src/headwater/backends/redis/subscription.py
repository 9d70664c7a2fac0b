"""A subscription to a channel, which outlives the connections that it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from headwater.backends.redis.connection import Push, RedisConnection
from headwater.core.logging import Outage
from headwater.errors import BackendError

_PAUSE = 0.5


class SubscribedServer(Protocol):
    """What sends the messages of a channel."""

    timeout: float

    async def subscribe(self, channel: str, on_push: Push) -> RedisConnection: ...


class Subscription:
    """The messages of a channel; a lost connection is opened again."""

    def __init__(
        self,
        server: SubscribedServer,
        channel: str,
        on_message: Callable[[Any], None],
        on_subscribed: Callable[[], None],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_lost`` is called after every attempt that failed, until the next one."""
        self._server = server
        self._channel = channel
        self._on_message = on_message
        self._on_subscribed = on_subscribed
        self._on_lost = on_lost
        self._listening: asyncio.Task[None] | None = None
        self._outage = Outage("messages")

    def start(self) -> None:
        """Subscribe, unless that was done before."""
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive()
            except BackendError as error:
                self._outage.report(
                    "warning", "subscription to Redis failed; polling", error, self._channel
                )
                self._on_lost()
                await asyncio.sleep(_PAUSE)

    async def _receive(self) -> None:
        """Receive messages until the connection is retired; a PING detects a silent loss."""
        connection = await self._server.subscribe(self._channel, self._on_message)
        try:
            self._outage.recovered(self._channel)
            self._on_subscribed()
            while not connection.is_retired:
                await asyncio.wait([connection.closed], timeout=self._server.timeout)
                if not connection.is_retired:
                    await connection.calls([["PING"]])
        finally:
            connection.close()

    async def close(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            with suppress(asyncio.CancelledError):
                await self._listening
