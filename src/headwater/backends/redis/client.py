"""Commands and scripts, sent to the server that has their slot; errors with a remedy."""

from __future__ import annotations

import asyncio
import hashlib
import re
from binascii import crc_hqx
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, Self

import hiredis
from msgspec.structs import replace

from headwater.backends.redis.address import Address, parse_url
from headwater.backends.redis.connection import Command, Push, RedisConnection, open_connection
from headwater.backends.redis.errors import LostError, is_withheld, refused
from headwater.backends.redis.sentinels import Sentinels
from headwater.core.credentials import Credentials, Login, credentials_of
from headwater.core.logging import Outage, log
from headwater.core.shared_tasks import SharedTasks
from headwater.errors import BackendError, BackendUnavailableError, ClosedError, ConfigError
from headwater.settings.servers import RedisSettings

_SHARED = re.compile(r"^-- shared: (\w+)\n", re.MULTILINE)
_GLOB = re.compile(r"[*?\[\]\\^]")
_SCANNED = 1_000
"""Keys that one SCAN looks at."""
_SLOTS = 16_384
# While slots move, two servers may redirect to each other until all agree.
_REDIRECTION_PAUSES = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
# Replies of a server that is not a usable master. Its address may belong to another server by now.
_NOT_MASTER = ("READONLY", "MASTERDOWN", "LOADING")
_OLDEST = (7, 0)
_UNKNOWN_HOSTS = (None, b"", b"?")
_OTHERS = RedisSettings()
_RETRY_SECONDS = 1.0
_LONGEST_SLEEP = 3_600.0


class Script(NamedTuple):
    """A Lua script, which runs atomically on the server."""

    name: str
    source: str
    sha: str


@cache
def _script(name: str) -> Script:
    """Load a script from the folder ``scripts``, with the shared functions that it names."""
    folder = files("headwater.backends.redis") / "scripts"
    source = _SHARED.sub(
        lambda line: (folder / "shared" / f"{line[1]}.lua").read_text("utf-8"),
        (folder / f"{name}.lua").read_text("utf-8"),
    )
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


@cache
def _all_scripts() -> list[Script]:
    folder = files("headwater.backends.redis") / "scripts"
    return [_script(file.name.removesuffix(".lua")) for file in folder.iterdir() if file.is_file()]


class Call(NamedTuple):
    """A command, and the key that decides which server runs it."""

    key: str
    command: Command
    script: Script | None = None


def script_call(name: str, keys: Sequence[str], *arguments: Any) -> Call:
    """Return the call of a script; its first key decides which server runs it."""
    script = _script(name)
    return Call(keys[0], ["EVALSHA", script.sha, len(keys), *keys, *arguments], script)


def command(key: str, *words: Any) -> Call:
    """Return the call of a plain command."""
    return Call(key, words)


def _with_source(call: Call) -> Command:
    """Return a command that brings the source of its script, which the server keeps."""
    return call.command if call.script is None else ["EVAL", call.script.source, *call.command[2:]]


def _slot(key: str) -> int:
    """Return the slot of a key, or of its hash tag if it has one."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if opened and closed and tag else key).encode(), 0) % _SLOTS


_Run = Callable[[Address, Sequence[Call]], Awaitable[list[Any]]]


class Redis:
    """One server, or the masters of a cluster, each over one shared connection.

    Behind Sentinels it is one server, whose place is asked for whenever a connection is opened.
    """

    def __init__(
        self, url: str, timeout: float, connect_timeout: float, settings: RedisSettings = _OTHERS
    ) -> None:
        """``settings`` have all that is not given otherwise."""
        # A server that is silent is noticed while connecting, before its commands are late.
        patience = min(connect_timeout, timeout)
        self._settings = replace(settings, url=url, timeout=timeout, connect_timeout=patience)
        self.timeout = timeout
        self._seeds = parse_url(url)
        self._seed = self._seeds[0]
        self._sentinels: Sentinels | None = None
        if self._seed.master:
            self._sentinels = Sentinels(self._seeds, self._settings, self._move_to)
            self._seeds = [self._seed]
        self._moves = 0
        self._named = ("", 0)
        """How often Sentinels have named a master, and the last one."""
        self._subscribers: set[RedisConnection] = set()
        texts = (url, settings.password)
        self._credentials = credentials_of("redis.credentials", settings.credentials, texts, _login)
        if self._credentials is None and settings.password:
            self._seeds = [seed._replace(password=settings.password) for seed in self._seeds]
            self._seed = self._seeds[0]
        self._renewing: asyncio.Task[None] | None = None
        self._renewals = Outage("credentials")
        self._is_behind = asyncio.Event()
        """Set when a connection was opened with a login that was replaced meanwhile."""
        self.connections: dict[Address, RedisConnection] = {}
        self._opening = SharedTasks[RedisConnection]()
        self._learning = SharedTasks[None]()
        self._slots: list[tuple[int, int, Address]] = []
        self._changes = 0
        """How often the map of slots may have changed: a server was lost, silent or redirected."""
        self._learned = 0
        """How many of these changes the known map includes."""
        self._closed = False
        self.clustered = False
        self.version = ""
        self.declares_keys = settings.declared_keys
        """Whether the server refuses scripts that derive the names of keys from what they read."""

    @classmethod
    def of(cls, settings: RedisSettings) -> Self:
        """Return a client of the server in the settings."""
        return cls(settings.url, settings.timeout, settings.connect_timeout, settings)

    async def open(self) -> None:
        """Connect to a server and find out its version and whether it is in a cluster."""
        address, hello = await self._first_reply(self._seeds, ["HELLO"])
        properties = dict(zip(hello[::2], hello[1::2], strict=True))
        self.version = version = properties[b"version"].decode()
        if properties[b"mode"] == b"sentinel":
            raise ConfigError(
                f"redis.url names a Sentinel at {address}; write "
                f"redis+sentinel://{address}/name, with the name of the master"
            )
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            raise BackendError(
                f"Redis at {address} is version {version}; Headwater needs 7.0 or newer"
            )
        self.clustered = properties[b"mode"] == b"cluster"
        if self.clustered:
            await self._learn_slots()
        elif len(self._seeds) > 1:
            raise ConfigError(
                f"redis.url names {len(self._seeds)} servers, but Redis at {address} is not in a "
                "cluster; name only the one that has the store"
            )

    async def call(self, call: Call) -> Any:
        """Run one call and return its reply."""
        (reply,) = await self.calls([call])
        return reply

    async def calls(self, calls: Sequence[Call], *, as_one: bool = False) -> list[Any]:
        """Run calls, one pipeline for each server, and return their replies in order.

        ``as_one`` makes them a transaction, unless they are for the servers of a cluster.
        """
        if not calls:
            return []
        if not self.clustered:
            return await self._run(self._seed, calls, as_one=as_one and len(calls) > 1)
        return await self._on_masters(calls, self._run)

    async def calls_apart(self, calls: Sequence[Call], seconds: float) -> list[Any]:
        """Run calls, and return an error in place of the reply of a call that was refused.

        In a cluster this includes all calls to a master that is unavailable or exceeds the timeout.
        """
        if not calls:
            return []
        if not self.clustered:
            return await self._run(self._seed, calls, apart=True)

        async def run(address: Address, calls: Sequence[Call]) -> list[Any]:
            try:
                async with asyncio.timeout(seconds):
                    return await self._run(address, calls, apart=True)
            except TimeoutError:
                self._mark_stale()
                return [
                    BackendUnavailableError(f"Redis at {address} did not answer in time")
                ] * len(calls)
            except BackendError as error:
                return [error] * len(calls)

        return await self._on_masters(calls, run)

    async def _on_masters(self, calls: Sequence[Call], run: _Run) -> list[Any]:
        if self._changes != self._learned:
            await self._learn_slots()
        by_server: dict[Address, list[int]] = {}
        for place, call in enumerate(calls):
            by_server.setdefault(self._master(call.key), []).append(place)
        all_replies: list[Any] = [None] * len(calls)

        async def run_on(address: Address, places: list[int]) -> None:
            replies = await run(address, [calls[place] for place in places])
            for place, reply in zip(places, replies, strict=True):
                all_replies[place] = reply

        await asyncio.gather(*(run_on(*item) for item in by_server.items()))
        return all_replies

    async def scan(self, prefix: str) -> AsyncIterator[list[str]]:
        """Yield the keys that begin with a prefix, from every master, some repeatedly."""
        pattern = _GLOB.sub(r"\\\g<0>", prefix) + "*"
        for address in await self._masters():
            cursor = b"0"
            while True:
                words = ["SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED]
                connection = await self._connection(address)
                ((cursor, keys),) = await self._checked(connection, [words])
                yield [key.decode() for key in keys]
                if cursor == b"0":
                    break

    async def sample(self, count: int) -> list[tuple[int, list[bytes]]] | None:
        """Return the number of keys of each master, and the names of about so many of them.

        None if a server does not allow that.
        """
        samples: list[tuple[int, list[bytes]]] = []
        for address in await self._masters():
            connection = await self._connection(address)
            words: list[Command] = [["DBSIZE"], ["SCAN", 0, "COUNT", count]]
            size, page = replies = await connection.calls(words)
            for reply in replies:
                if isinstance(reply, hiredis.ReplyError):
                    if is_withheld(str(reply)):
                        return None
                    raise self._refused(connection, str(reply))
            if page[1]:
                samples.append((size, page[1]))
        return samples

    async def _masters(self) -> list[Address]:
        if self._changes != self._learned:
            await self._learn_slots()
        masters = [master for *_, master in self._slots] if self.clustered else [self._seed]
        return list(dict.fromkeys(masters))

    async def subscribe(self, channel: str, on_push: Push) -> RedisConnection:
        """Open a separate connection that receives the messages of a channel from now on."""
        problem: BackendError | None = None
        for address in self._servers():
            try:
                return await self._subscribed(address, channel, on_push)
            except BackendError as error:
                problem = error
        raise problem or ClosedError("the store is closed")

    async def _subscribed(self, address: Address, channel: str, on_push: Push) -> RedisConnection:
        moves = self._moves
        connection = await self._opened(address, on_push)
        with ExitStack() as undo:
            undo.callback(connection.close)
            await self._checked(connection, [["SUBSCRIBE", channel]])
            self._check_moves(connection, moves)
            undo.pop_all()
        self._subscribers.add(connection)
        self._check_login(connection)
        connection.closed.add_done_callback(lambda _: self._subscribers.discard(connection))
        return connection

    async def close(self) -> None:
        """Close all connections and wait for their end."""
        self._closed = True
        if self._sentinels is not None:
            await self._sentinels.close()
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait([self._renewing])
        if self._credentials is not None:
            await self._credentials.close()
        await self._learning.close()
        await self._opening.close()
        connections, self.connections = self.connections, {}
        for connection in connections.values():
            connection.close()
        if connections:
            await asyncio.wait([connection.closed for connection in connections.values()])

    async def _run(
        self,
        address: Address,
        calls: Sequence[Call],
        *,
        as_one: bool = False,
        apart: bool = False,
    ) -> list[Any]:
        try:
            connection = await self._connection(address)
        except BackendError:
            # In a cluster a replica may have been promoted; the other servers know which.
            self._mark_stale()
            raise
        commands = [call.command for call in calls]
        if connection.lacks_scripts:
            commands = [
                _with_source(call) if call.script not in connection.scripts else call.command
                for call in calls
            ]
        replies: list[Any]
        if as_one:
            *_, replies = await self._checked(connection, [["MULTI"], *commands, ["EXEC"]])
        else:
            replies = await connection.calls(commands)
        for place, reply in enumerate(replies):
            if isinstance(reply, hiredis.ReplyError):
                replies[place] = answer = await self._retried(connection, calls[place], reply)
                if isinstance(answer, BackendError) and not apart:
                    raise answer
        if connection.lacks_scripts:
            connection.scripts.update(call.script for call in calls if call.script)
        return replies

    async def _checked(self, connection: RedisConnection, commands: Sequence[Command]) -> list[Any]:
        replies = await connection.calls(commands)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise self._refused(connection, str(reply))
        return replies

    async def _retried(
        self, connection: RedisConnection, call: Call, problem: hiredis.ReplyError
    ) -> Any:
        """Send a call again that was refused before it ran; return its reply or its error."""
        for pause in _REDIRECTION_PAUSES:
            kind, _, rest = str(problem).partition(" ")
            before: list[Command] = []
            sent = call.command
            if kind == "NOSCRIPT":
                sent = _with_source(call)
            elif kind in ("MOVED", "ASK"):
                await asyncio.sleep(pause)
                host, _, port = rest.rpartition(" ")[2].rpartition(":")
                target = _endpoint(connection.address, [host.encode(), int(port)])
                if kind == "MOVED":
                    self._mark_stale()
                connection = await self._connection(target)
                before = [["ASKING"]] if kind == "ASK" else []
                if kind == "MOVED":
                    await self._learn_slots()
            elif kind == "TRYAGAIN":
                await asyncio.sleep(pause)
            else:
                break
            *_, reply = await connection.calls([*before, sent])
            if not isinstance(reply, hiredis.ReplyError):
                return reply
            problem = reply
        return self._refused(connection, str(problem))

    def _refused(self, connection: RedisConnection, reply: str) -> BackendError:
        kind = reply.partition(" ")[0]
        if kind in _NOT_MASTER:
            connection.close()
        elif kind == "CLUSTERDOWN":
            self._mark_stale()
        return refused(connection.address, reply)

    async def _connection(self, address: Address) -> RedisConnection:
        connection = self.connections.get(address)
        if connection is None or not connection.alive:
            if self._closed:
                raise ClosedError("the store is closed")
            connection = await self._opening.run(address, partial(self._open, address))
        return connection

    async def _open(self, address: Address) -> RedisConnection:
        moves = self._moves
        connection = await self._opened(address)
        with ExitStack() as undo:
            undo.callback(connection.close)
            await self._load_scripts(connection)
            self._check_moves(connection, moves)
            undo.pop_all()
        self.connections[address] = connection
        self._check_login(connection)
        connection.closed.add_done_callback(partial(self._forget, address, connection))
        return connection

    async def _load_scripts(self, connection: RedisConnection) -> None:
        """Load all scripts, unless the server withholds that: then first calls bring theirs."""
        sources = [["SCRIPT", "LOAD", script.source] for script in _all_scripts()]
        for reply in await connection.calls(sources):
            if isinstance(reply, hiredis.ReplyError):
                if not is_withheld(str(reply)):
                    raise self._refused(connection, str(reply))
                connection.lacks_scripts = True

    async def _opened(self, address: Address, on_push: Push | None = None) -> RedisConnection:
        settings = self._settings
        if self._sentinels is not None:
            self._sentinels.watch()
            address = address.at(*await self._sentinels.master())
        timeouts = (self.timeout, settings.connect_timeout)
        credentials = self._credentials
        connection = await open_connection(address, *timeouts, on_push, settings.tls, credentials)
        if credentials is not None and self._renewing is None:
            self._renewing = asyncio.create_task(self._renew(credentials))
        if self._sentinels is not None:
            with ExitStack() as undo:
                undo.callback(connection.close)
                await self._check_master(connection)
                undo.pop_all()
        return connection

    async def _renew(self, credentials: Credentials) -> None:
        """Keep the user and the password of all connections valid, without a break for callers."""
        pause = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause or credentials.due_in, _LONGEST_SLEEP)):
                    await self._is_behind.wait()
            self._is_behind.clear()
            pause = 0.0
            try:
                login = await credentials.renewed()
            except BackendError as error:
                self._renewals.report("warning", "credentials not renewed", error, "login")
                pause = _RETRY_SECONDS
                continue
            self._renewals.recovered("login")
            former = [each for each in self.connections.values() if each.login != login]
            accepted = await asyncio.gather(*(self._log_in(each, login) for each in former))
            refusing = {each.address for each, ok in zip(former, accepted, strict=True) if not ok}
            if refusing:
                # A server may learn of a login after its issuer, so its time says nothing.
                credentials.refuse(login)
                pause = _RETRY_SECONDS
            for subscriber in [*self._subscribers]:
                # It cannot send AUTH.
                if subscriber.login != login and subscriber.address not in refusing:
                    subscriber.retire()

    def _check_login(self, connection: RedisConnection) -> None:
        """Let a connection be logged in again that `_renew` did not know of when it last did."""
        if self._credentials is not None and connection.login != self._credentials.latest():
            self._is_behind.set()

    async def _log_in(self, connection: RedisConnection, login: Login) -> bool:
        """Return whether a server has not refused a login; the connection may be lost."""
        with suppress(LostError):  # the next one is opened with the present login
            reply, *_ = await connection.log_in(login, [["PING"]])
            if isinstance(reply, hiredis.ReplyError):
                error = refused(connection.address, str(reply))
                name = str(connection.address)
                self._renewals.report("warning", "credentials not renewed", error, name)
                return False
        self._renewals.recovered(str(connection.address))
        return True

    async def _check_master(self, connection: RedisConnection) -> None:
        """Refuse a server that is no longer, or not yet, the master that a Sentinel takes it for.

        HELLO tells the role, too, and needs no right, other than ROLE.
        """
        (hello,) = await self._checked(connection, [["HELLO"]])
        if dict(zip(hello[::2], hello[1::2], strict=True))[b"role"] != b"master":
            raise BackendUnavailableError(
                f"Redis at {connection.address} is a replica, though Sentinels name it as the "
                "master: a failover is in progress; try again"
            )

    def _move_to(self, host: str, port: int) -> None:
        """Leave every server but the master; what it did with the commands is unknown."""
        self._moves += 1
        self._named = (host, port)
        for connection in [*self.connections.values(), *self._subscribers]:
            if (connection.address.host, connection.address.port) != (host, port):
                log.warning(
                    "Redis has another master", was=str(connection.address), now=f"{host}:{port}"
                )
                connection.retire()

    def _check_moves(self, connection: RedisConnection, moves: int) -> None:
        """Refuse a server if Sentinels have named another master since so many moves.

        `_move_to` does not know a connection that is being opened.
        """
        place = (connection.address.host, connection.address.port)
        if moves != self._moves and place != self._named:
            raise BackendUnavailableError(
                f"Redis at {connection.address} was replaced as the master while a connection to "
                "it was opened: a failover is in progress; try again"
            )

    def _forget(self, address: Address, connection: RedisConnection, _: object) -> None:
        if self.connections.get(address) is connection:
            del self.connections[address]
        self._mark_stale()

    def _mark_stale(self) -> None:
        self._changes += 1

    def _master(self, key: str) -> Address:
        slot = _slot(key)
        for first, last, address in self._slots:
            if first <= slot <= last:
                return address
        self._mark_stale()
        raise BackendUnavailableError(
            f"no server of the cluster at {self._seed} has slot {slot}; see `CLUSTER INFO` there"
        )

    def _servers(self) -> list[Address]:
        """Return all known servers, connected ones first."""
        alive = [address for address, connection in self.connections.items() if connection.alive]
        masters = (master for *_, master in self._slots)
        return list(dict.fromkeys([*alive, *self._seeds, *masters]))

    async def _learn_slots(self) -> None:
        """Learn the map of slots from the server that is first to answer."""
        await self._learning.run("slots", self._ask_for_slots)

    async def _ask_for_slots(self) -> None:
        changes = self._changes  # the reply may not include later ones
        address, ranges = await self._first_reply(self._servers(), ["CLUSTER", "SLOTS"])
        self._slots = [
            (first, last, _endpoint(address, master)) for first, last, master, *_ in ranges
        ]
        self._learned = changes

    async def _first_reply(
        self, servers: Sequence[Address], command: Command
    ) -> tuple[Address, Any]:
        """Ask all servers at once; return the first reply and the server that gave it."""
        asking = {asyncio.ensure_future(self._ask(address, command)) for address in servers}
        try:
            while True:
                done, asking = await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)
                for address, reply in (task.result() for task in done):
                    if not isinstance(reply, BackendError):
                        return address, reply
                if not asking:
                    others = ", ".join(str(other) for other in servers if other != address)
                    text = f"{reply}; tried also {others}" if others else str(reply)
                    raise type(reply)(text) from reply
        finally:
            for task in asking:
                task.cancel()

    async def _ask(self, address: Address, command: Command) -> tuple[Address, Any]:
        try:
            (reply,) = await self._checked(await self._connection(address), [command])
        except BackendError as error:
            return address, error
        return address, reply


def _login(url: str, password: str) -> Login:
    """Return the user and the password of settings."""
    seed = parse_url(url)[0]
    return Login(seed.username, password or seed.password)


def _endpoint(asked: Address, node: Sequence[Any]) -> Address:
    """Return the address of a node of the cluster as the asked server describes it.

    A server that does not know under which name clients reach a node gives none, or a "?".
    """
    host, port, *described = node
    if host == b"?" and len(described) > 1:
        details = dict(zip(described[1][::2], described[1][1::2], strict=True))
        host = details.get(b"ip")
    return asked.at(asked.host if host in _UNKNOWN_HOSTS else host.decode(), port)
