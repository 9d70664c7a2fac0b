"""The master that Sentinels watch: where it is, and when it is another one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import hiredis

from headwater.backends.redis.address import Address
from headwater.backends.redis.connection import Command, Push, RedisConnection, open_connection
from headwater.backends.redis.errors import refused
from headwater.backends.redis.subscription import Subscription
from headwater.core.credentials import Login, credentials_of
from headwater.errors import BackendError, BackendUnavailableError
from headwater.settings.servers import RedisSettings, TlsSettings

_SWITCHED = "+switch-master"


class _Sentinel:
    """One Sentinel, with a connection for each question or subscription."""

    def __init__(self, address: Address, settings: RedisSettings) -> None:
        own = settings.sentinel
        is_secure = address.secure if own.encrypted == "auto" else own.encrypted == "yes"
        self._address = address.at(address.host, address.port)._replace(
            username=own.username, password=own.password, database=0, secure=is_secure
        )
        self._credentials = credentials_of(
            "redis.sentinel.password",
            "",
            (own.password,),
            lambda password: Login(own.username, password),
        )
        self._connect_timeout = min(settings.connect_timeout, settings.timeout)
        self._tls = settings.tls if own.tls == TlsSettings() else own.tls
        self.timeout = settings.timeout

    async def ask(self, *commands: Command) -> list[Any]:
        connection = await self._open()
        try:
            return self._checked(await connection.calls(commands))
        finally:
            connection.close()

    async def subscribe(self, channel: str, on_push: Push) -> RedisConnection:
        connection = await self._open(on_push)
        with ExitStack() as undo:
            undo.callback(connection.close)
            self._checked(await connection.calls([["SUBSCRIBE", channel]]))
            undo.pop_all()
        return connection

    async def _open(self, on_push: Push | None = None) -> RedisConnection:
        timeouts = (self.timeout, self._connect_timeout)
        return await open_connection(
            self._address, *timeouts, on_push, self._tls, self._credentials
        )

    def _checked(self, replies: list[Any]) -> list[Any]:
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise refused(self._address, f"{reply} (a Sentinel: see redis.sentinel)")
        return replies


class _Answer(NamedTuple):
    epoch: int
    host: str
    port: int


class Sentinels:
    """The Sentinels of a URL, who agree on a master."""

    def __init__(
        self,
        seeds: Sequence[Address],
        settings: RedisSettings,
        on_master: Callable[[str, int], None],
    ) -> None:
        """``on_master`` is called when there may be another master, with its place."""
        self._name = seeds[0].master
        self._sentinels = [_Sentinel(address, settings) for address in seeds]
        self._on_master = on_master
        self._looking: set[asyncio.Task[None]] = set()
        self._subscriptions = [
            Subscription(sentinel, _SWITCHED, self._on_message, self._look)
            for sentinel in self._sentinels
        ]

    def watch(self) -> None:
        """Begin to listen for failovers, unless that was done before."""
        for subscription in self._subscriptions:
            subscription.start()

    async def master(self) -> tuple[str, int]:
        """Return the place of the master that most Sentinels agree on.

        One that was cut off may still name an old master. The last failover has the highest epoch,
        and most Sentinels took part in it, so the answers of most include it.
        """
        asking = [asyncio.ensure_future(self._ask(sentinel)) for sentinel in self._sentinels]
        answers: list[_Answer] = []
        problem: BackendError | None = None
        try:
            for answering in asyncio.as_completed(asking):
                try:
                    answers.append(await answering)
                except BackendError as error:
                    problem = error
                if len(answers) > len(asking) // 2:
                    break
        finally:
            for task in asking:
                task.cancel()
        if len(answers) <= len(asking) // 2:
            few = f"only {len(answers)} of {len(asking)} Sentinels know"
            raise BackendUnavailableError(
                f"{few if answers else 'no Sentinel knows'} where {self._name!r} is, and most of "
                f"those in redis.url have to: {problem}"
            ) from problem
        _, host, port = max(answers)
        return host, port

    async def _ask(self, sentinel: _Sentinel) -> _Answer:
        place, details = await sentinel.ask(
            ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._name], ["SENTINEL", "MASTER", self._name]
        )
        properties = dict(zip(details[::2], details[1::2], strict=True))
        return _Answer(int(properties[b"config-epoch"]), place[0].decode(), int(place[1]))

    def _look(self) -> None:
        """Ask for the master, because messages before the subscription are unknown."""
        task = asyncio.get_running_loop().create_task(self._find())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _find(self) -> None:
        # Without an answer, the connections to the present master show whether it lives.
        with suppress(BackendUnavailableError):
            self._on_master(*await self.master())

    def _on_message(self, message: Any) -> None:
        name, _, _, host, port = message[-1].decode().split(" ")
        if name == self._name:
            self._on_master(host, int(port))

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        for task in [*self._looking]:
            task.cancel()
        await asyncio.gather(*self._looking, return_exceptions=True)
