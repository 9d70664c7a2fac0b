"""A rolling update of the API under load, in the steps of the chart: what clients notice of it."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from itertools import count, takewhile
from pathlib import Path
from typing import NamedTuple

import httpx

from chaos.features import EMPTY, Chain, extended
from chaos.fleet import FEATURES, Fleet, environment
from chaos.run import opened
from chaos.waiting import until
from headwater import FeatureStore
from headwater.client import AsyncClient
from headwater.errors import HeadwaterError
from headwater.settings.schema import Settings
from tests.proxy import Proxy
from tests.servers import quiet_port

_HOST = "127.0.0.1"
_PUBLISHERS = 4
_READERS = 2
_PAUSE_SECONDS = 0.005
_PATIENCE_SECONDS = 120.0


class Rollout(NamedTuple):
    """What a rolling update has done to the requests of its time."""

    requests: int
    failed: list[str]
    """The requests whose clients got an error."""
    repeated: int
    """The attempts that the clients with kept connections had to make again."""
    events: int
    lost: list[str]
    """The accounts whose acknowledged events were not each handled once and in order."""
    exits: list[int]
    """The exit codes of the replaced processes."""


class Service(Proxy):
    """Connects each client to one of the endpoints, as a Service of Kubernetes does."""

    endpoints: tuple[int, ...] = ()

    def choose(self) -> int:
        return random.choice(self.endpoints)


class Api:
    """A `headwater serve` without workers."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.port = quiet_port()
        self._settings = settings
        self._folder = folder

    async def start(self) -> None:
        """Start it, and return when it is ready."""
        with (self._folder / f"api-{self.port}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headwater", "serve", str(FEATURES), "--json"),
                *("--workers", "0", "--port", str(self.port)),
                cwd=self._folder,
                env=environment(self._settings),
                stdout=log,
                stderr=log,
            )

        async def is_ready() -> bool:
            assert self._process.returncode is None, f"see {log.name}"
            try:
                answer = await probes.get(f"http://{_HOST}:{self.port}/readyz")
            except httpx.TransportError:
                return False
            return answer.is_success

        async with httpx.AsyncClient() as probes:
            assert await until(is_ready, _PATIENCE_SECONDS)

    async def stop(self) -> int:
        """Stop it by SIGTERM and return its exit code."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()


class Watched(httpx.AsyncHTTPTransport):
    """Counts the requests that could not be sent, or got no answer."""

    broken = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        try:
            return await super().handle_async_request(request)
        except httpx.TransportError:
            self.broken += 1
            raise


class Clients:
    """Programs that publish and read: some keep connections and repeat requests, others do not."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._transport = Watched()
        limits = httpx.Limits(max_keepalive_connections=0)
        self._alone = httpx.AsyncClient(base_url=url, limits=limits, timeout=_PATIENCE_SECONDS)
        self._is_over = False
        self.chains: dict[str, Chain] = {}
        """What the accounts must be after the acknowledged events."""
        self.requests = 0
        self.failed: list[str] = []

    @property
    def repeated(self) -> int:
        return self._transport.broken

    async def run(self) -> None:
        """Send requests until they are told to end."""
        async with (
            self._alone,
            AsyncClient(self._url, transport=self._transport) as client,
            asyncio.TaskGroup() as group,
        ):
            for number in range(_PUBLISHERS):
                group.create_task(self._publish(f"kept-{number}", partial(_ingest, client)))
                group.create_task(self._publish(f"alone-{number}", self._ingest_alone))
            for _ in range(_READERS):
                group.create_task(self._read(client))

    def end(self) -> None:
        """Let them end when their present requests are answered."""
        self._is_over = True

    async def _publish(self, account: str, send: Callable[[str, int], Awaitable[None]]) -> None:
        for number in self._turns():
            if await self._is_answered(f"event {number} of {account}", send(account, number)):
                before = self.chains.get(account, EMPTY)
                self.chains[account] = extended(before, number, f"{account}-{number}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _read(self, client: AsyncClient) -> None:
        for _ in self._turns():
            await self._is_answered("a read", client.get_features(["chain"], ["kept-0", "alone-0"]))
            await asyncio.sleep(_PAUSE_SECONDS)

    def _turns(self) -> Iterator[int]:
        return takewhile(lambda _: not self._is_over, count(1))

    async def _is_answered(self, what: str, request: Awaitable[object]) -> bool:
        self.requests += 1
        try:
            await request
        except (HeadwaterError, httpx.HTTPError) as error:
            self.failed.append(f"{what}: {error!r}")
            return False
        return True

    async def _ingest_alone(self, account: str, number: int) -> None:
        """Publish through a connection of its own, and never again."""
        event = {"event_id": f"{account}-{number}", "payload": {"number": number}}
        answer = await self._alone.post("/ingest/step", json={"entity_id": account} | event)
        answer.raise_for_status()


async def _ingest(client: AsyncClient, account: str, number: int) -> None:
    await client.publish("step", account, {"number": number}, event_id=f"{account}-{number}")


async def roll_out(
    settings: Settings, folder: Path, *, updates: int = 2, replicas: int = 2, pause: float = 5.0
) -> Rollout:
    """Update the API ``updates`` times, with clients that publish and read all the time.

    A process is started, and gets connections when it is ready. Then an old one is to end: it gets
    connections for half of the pause, which is that before SIGTERM, because nodes hear of it late.
    """
    service = Service()
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(opened(settings))
        fleet = await stack.enter_async_context(Fleet(settings, folder, 1))
        await fleet.at_work(store, _PATIENCE_SECONDS)

        async def add() -> Api:
            api = Api(settings, folder)
            stack.push_async_callback(api.stop)
            await api.start()
            service.endpoints = (*service.endpoints, api.port)
            return api

        running = [await add() for _ in range(replicas)]
        await service.open()
        stack.push_async_callback(service.close)
        clients = Clients(f"http://{_HOST}:{service.port}")
        exits = []
        async with asyncio.TaskGroup() as group:
            group.create_task(clients.run())
            for _ in range(updates * replicas):
                running.append(await add())
                old = running.pop(0)
                await asyncio.sleep(pause / 2)
                service.endpoints = tuple(api.port for api in running)
                await asyncio.sleep(pause / 2)
                exits.append(await old.stop())
            clients.end()
        lost = await _lost(store, clients.chains)
        await fleet.stop()
    events = sum(events for events, _, _ in clients.chains.values())
    return Rollout(clients.requests, clients.failed, clients.repeated, events, lost, exits)


async def _lost(store: FeatureStore, chains: Mapping[str, Chain]) -> list[str]:
    """Wait for the events, and return the accounts that are not as expected."""
    rows: Mapping[str, Mapping[str, Chain | None]] = {}

    async def is_done() -> bool:
        nonlocal rows
        rows = await store.get_features(["chain"], list(chains))
        return all((row["chain"] or EMPTY) == chains[account] for account, row in rows.items())

    await until(is_done, _PATIENCE_SECONDS)
    found = {account: row["chain"] or EMPTY for account, row in rows.items()}
    return [
        f"{name}: {found[name]}, not {chain}"
        for name, chain in chains.items()
        if found[name] != chain
    ]
