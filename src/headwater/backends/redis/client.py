"""Redis as the backends use it: scripts sent to the server that has their slot, errors in words."""

from __future__ import annotations

import asyncio
import hashlib
import re
from binascii import crc_hqx
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import hiredis

from headwater.backends.redis.connection import Address, Command, Push, Wire, open_wire
from headwater.errors import BackendError, BackendUnavailableError, ClosedError

_SHARED = re.compile(r"^-- shared: (\w+)\n", re.MULTILINE)
_SLOTS = 16_384
# While slots move, two servers may send us to one another until all agree.
_REDIRECTION_PAUSES = (0, 0.05, 0.1, 0.2, 0.4, 0.8)
# Who says so is no master; behind its address there may be another server by now, which is.
_NO_MASTER = ("READONLY", "MASTERDOWN", "LOADING")
_OLDEST = (7, 0)


class Script(NamedTuple):
    """A script that runs on the server as one step: all of it, or none."""

    name: str
    source: str
    sha: str


@cache
def script(name: str) -> Script:
    """One of the scripts that lie beside this file, with the functions that it shares."""
    folder = files("headwater.backends.redis") / "scripts"
    source = _SHARED.sub(
        lambda line: (folder / "shared" / f"{line[1]}.lua").read_text("utf-8"),
        (folder / f"{name}.lua").read_text("utf-8"),
    )
    return Script(name, source, hashlib.sha1(source.encode()).hexdigest())


@cache
def _all_scripts() -> list[Script]:
    folder = files("headwater.backends.redis") / "scripts"
    return [script(file.name.removesuffix(".lua")) for file in folder.iterdir() if file.is_file()]


class Call(NamedTuple):
    """A command and the key that says which server has to run it."""

    key: str
    command: Command
    script: Script | None = None


def running(what: Script, keys: Sequence[str], *arguments: Any) -> Call:
    """The call of a script; the first of its keys says where."""
    return Call(keys[0], ["EVALSHA", what.sha, len(keys), *keys, *arguments], what)


def asking(key: str, *command: Any) -> Call:
    """The call of a plain command."""
    return Call(key, command)


def _slot(key: str) -> int:
    """The slot of a key: that of its hash tag, where it has one."""
    _, opened, rest = key.partition("{")
    tag, closed, _ = rest.partition("}")
    return crc_hqx((tag if opened and closed and tag else key).encode(), 0) % _SLOTS


_Run = Callable[[Address, Sequence[Call]], Awaitable[list[Any]]]


class Redis:
    """One server, or the masters of a cluster, each over one shared connection."""

    def __init__(self, url: str, timeout: float, connect_timeout: float) -> None:
        self._seed = Address.parse(url)
        self.timeout = timeout
        self._connect_timeout = connect_timeout
        self.wires: dict[Address, Wire] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._slots: list[tuple[int, int, Address]] = []
        self._stale = False
        self._closed = False
        self.clustered = False

    async def open(self) -> None:
        """Connects to the first server and learns what it is."""
        (info,) = await self._on(await self._wire(self._seed), [["INFO", "server"]])
        known = dict(re.findall(r"^(\w+):(.*?)\r?$", info.decode(), re.MULTILINE))
        version = known.get("redis_version", "0.0")
        if tuple(map(int, version.split(".")[:2])) < _OLDEST:
            raise BackendError(
                f"Redis at {self._seed} is version {version}; Headwater needs 7.0 or newer"
            )
        self.clustered = (
            known.get("redis_mode", known.get("server_mode", "standalone")) == "cluster"
        )
        if self.clustered:
            await self._learn_slots()

    async def call(self, what: Call) -> Any:
        """Runs one call; its answer."""
        (reply,) = await self.calls([what])
        return reply

    async def calls(self, calls: Sequence[Call], *, as_one: bool = False) -> list[Any]:
        """Runs calls, those for one server in one piece; their answers in order.

        ``as_one`` makes them a transaction, where one server has all of them.
        """
        if not calls:
            return []
        if not self.clustered:
            return await self._run(self._seed, calls, as_one=as_one and len(calls) > 1)
        return await self._on_masters(calls, self._run)

    async def calls_apart(self, calls: Sequence[Call], seconds: float) -> list[Any]:
        """Runs calls likewise; the answer of one that is refused is its error.

        In a cluster, so it is for all calls of a master that is away or takes longer than this.
        """
        if not calls:
            return []
        if not self.clustered:
            return await self._run(self._seed, calls, apart=True)

        async def run(address: Address, own: Sequence[Call]) -> list[Any]:
            try:
                async with asyncio.timeout(seconds):
                    return await self._run(address, own, apart=True)
            except TimeoutError:
                return [
                    BackendUnavailableError(f"Redis at {address} gave no answer in time")
                ] * len(own)
            except BackendError as error:
                return [error] * len(own)

        return await self._on_masters(calls, run)

    async def _on_masters(self, calls: Sequence[Call], run: _Run) -> list[Any]:
        if self._stale:
            await self._learn_slots()
        by_server: dict[Address, list[int]] = {}
        for place, call in enumerate(calls):
            by_server.setdefault(self._master(call.key), []).append(place)
        answers: list[Any] = [None] * len(calls)

        async def run_own(address: Address, places: list[int]) -> None:
            replies = await run(address, [calls[place] for place in places])
            for place, reply in zip(places, replies, strict=True):
                answers[place] = reply

        await asyncio.gather(*(run_own(*each) for each in by_server.items()))
        return answers

    async def subscribe(self, channel: str, on_push: Push) -> Wire:
        """A connection of its own on which a channel's messages arrive from now on."""
        problem: BackendError | None = None
        for address in self._servers():
            try:
                return await self._subscribed(address, channel, on_push)
            except BackendError as error:
                problem = error
        raise problem or ClosedError("the store is closed")

    async def _subscribed(self, address: Address, channel: str, on_push: Push) -> Wire:
        wire = await open_wire(address, self.timeout, self._connect_timeout, on_push)
        with ExitStack() as undo:
            undo.callback(wire.close)
            await self._on(wire, [["SUBSCRIBE", channel]])
            undo.pop_all()
        return wire

    async def close(self) -> None:
        """Closes all connections and waits for their end."""
        self._closed = True
        wires, self.wires = self.wires, {}
        for wire in wires.values():
            wire.close()
        if wires:
            await asyncio.wait([wire.closed for wire in wires.values()])

    async def _run(
        self,
        address: Address,
        calls: Sequence[Call],
        *,
        as_one: bool = False,
        apart: bool = False,
    ) -> list[Any]:
        wire = await self._wire(address)
        commands = [call.command for call in calls]
        replies: list[Any]
        if as_one:
            *_, replies = await self._on(wire, [["MULTI"], *commands, ["EXEC"]])
        else:
            replies = await wire.calls(commands)
        for place, reply in enumerate(replies):
            if isinstance(reply, hiredis.ReplyError):
                replies[place] = answer = await self._mended(wire, calls[place], reply)
                if isinstance(answer, BackendError) and not apart:
                    raise answer
        return replies

    async def _on(self, wire: Wire, commands: Sequence[Command]) -> list[Any]:
        replies = await wire.calls(commands)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise self._refused(wire, str(reply))
        return replies

    async def _mended(self, wire: Wire, call: Call, problem: hiredis.ReplyError) -> Any:
        """The answer of a call that was refused before it began, and so may be sent again.

        If it is refused for good, that is its error.
        """
        for pause in _REDIRECTION_PAUSES:
            kind, _, rest = str(problem).partition(" ")
            before: list[Command] = []
            if kind == "NOSCRIPT" and call.script is not None:
                before = [["SCRIPT", "LOAD", call.script.source]]
            elif kind in ("MOVED", "ASK"):
                await asyncio.sleep(pause)
                host, _, port = rest.rpartition(" ")[2].rpartition(":")
                wire = await self._wire(self._seed.at(host or self._seed.host, int(port)))
                before = [["ASKING"]] if kind == "ASK" else []
                if kind == "MOVED":
                    await self._learn_slots()
            elif kind == "TRYAGAIN":
                await asyncio.sleep(pause)
            else:
                break
            *_, reply = await wire.calls([*before, call.command])
            if not isinstance(reply, hiredis.ReplyError):
                return reply
            problem = reply
        return self._refused(wire, str(problem))

    def _refused(self, wire: Wire, reply: str) -> BackendError:
        kind = reply.partition(" ")[0]
        if kind in _NO_MASTER:
            wire.close()
        remedy = _REMEDIES.get(kind)
        text = f"Redis at {self._seed} refused: {reply}" + (f"; {remedy}" if remedy else "")
        return (
            BackendUnavailableError(text)
            if kind in (*_NO_MASTER, "CLUSTERDOWN")
            else BackendError(text)
        )

    async def _wire(self, address: Address) -> Wire:
        wire = self.wires.get(address)
        if wire is None or not wire.alive:
            if self._closed:
                raise ClosedError("the store is closed")
            async with self._opening[address]:
                wire = self.wires.get(address)
                if wire is None or not wire.alive:
                    wire = await self._open(address)
        return wire

    async def _open(self, address: Address) -> Wire:
        try:
            wire = await open_wire(address, self.timeout, self._connect_timeout)
        except BackendError:
            # In a cluster a replica may have taken over; whoever still answers knows which.
            self._stale = self.clustered
            raise
        self.wires[address] = wire
        await self._on(wire, [["SCRIPT", "LOAD", each.source] for each in _all_scripts()])
        return wire

    def _master(self, key: str) -> Address:
        slot = _slot(key)
        for first, last, address in self._slots:
            if first <= slot <= last:
                return address
        raise BackendError(
            f"no server of the cluster at {self._seed} has slot {slot}; see `CLUSTER INFO` there"
        )

    def _servers(self) -> list[Address]:
        """All servers known so far, those first that answered last."""
        alive = [address for address, wire in self.wires.items() if wire.alive]
        return list(dict.fromkeys([*alive, self._seed, *(master for *_, master in self._slots)]))

    async def _learn_slots(self) -> None:
        """Asks one server after the other who has which slots."""
        problem: BackendError | None = None
        for address in self._servers():
            try:
                (ranges,) = await self._on(await self._wire(address), [["CLUSTER", "SLOTS"]])
            except BackendError as error:
                problem = error
                continue
            self._slots = [
                (first, last, self._seed.at(master[0].decode() or address.host, master[1]))
                for first, last, master, *_ in ranges
            ]
            self._stale = False
            return
        raise problem or BackendError(f"no server of the cluster at {self._seed} answers")


_REMEDIES = {
    "OOM": "it is out of memory: give it more, or let workers catch up",
    "LOADING": "it is still loading its data",
    "READONLY": "it is a replica: redis.url must name the master",
    "MISCONF": "it cannot write to its disk: see its log",
    "NOAUTH": "redis.url must carry its password",
    "NOPERM": "redis.url's user needs `ACL SETUSER … +@all ~*<redis.prefix>:* &<redis.prefix>:*`",
    "WRONGTYPE": "something else writes to our keys: give one of them another redis.prefix",
    "CLUSTERDOWN": "the cluster lacks a master: see `CLUSTER INFO` there",
}
