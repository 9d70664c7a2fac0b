"""A run of the soak: start a server, measure its capacity, load it, and judge it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bench.keys import ServerKeys
from bench.process import Command, free_port, scratch, serving, status
from bench.production import new_store
from bench.startup import HEADWATER
from chaos.waiting import until
from headwater.client import AsyncClient
from soak.load import Load
from soak.mix import CALLERS, endless, kinds_of
from soak.probe import Probe, fill, waiting_events
from soak.sampling import Sampler
from soak.verdict import Findings
from tests.servers import postgres, valkey

FEATURES = "soak.features"
_WARM_UP_SHARE = 0.02
_SHORTEST_WARM_UP = 1.0
_CAPACITY_SHARE = 0.05
_LONGEST_CAPACITY = 20.0
_SHORTEST_CAPACITY = 2.0
_SAMPLES = 240
_SHORTEST_INTERVAL = 0.25
_HANDLED_WITHIN_SECONDS = 60.0


class Order(NamedTuple):
    """What to run."""

    seconds: float
    share: float = 0.7
    """Of the capacity that was measured."""
    on_servers: bool = False


class Deployment(NamedTuple):
    """A running server."""

    pid: int
    port: int
    home: Path
    headers: Mapping[str, Mapping[str, str]]
    """The headers of each caller."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, caller: str) -> AsyncClient:
        return AsyncClient(self.url, key=self.headers[caller]["X-API-Key"])


async def run(order: Order) -> Findings:
    """Run the soak and return what was measured."""
    with deployed(on_servers=order.on_servers) as server:
        async with server.client("shop") as shop, server.client("scraper") as scraper:
            context_ids = await fill(shop)
            load = Load(server.port, endless(kinds_of(context_ids), server.headers))
            await load.connect()
            try:
                capacity = await _capacity(order, load, scraper)
                return await _soak(order, server, load, scraper, capacity)
            finally:
                await load.close()


async def _capacity(order: Order, load: Load, scraper: AsyncClient) -> float:
    """Return how many requests a second the server answers, with all their events handled."""
    await load.saturate(max(_SHORTEST_WARM_UP, _WARM_UP_SHARE * order.seconds))
    await _handled(scraper)
    seconds = min(_LONGEST_CAPACITY, max(_SHORTEST_CAPACITY, _CAPACITY_SHARE * order.seconds))
    began = time.perf_counter()
    tally = await load.saturate(seconds)
    await _handled(scraper)
    return tally.answered / (time.perf_counter() - began)


async def _soak(
    order: Order, server: Deployment, load: Load, scraper: AsyncClient, capacity: float
) -> Findings:
    probe = Probe(server.url)
    interval = max(_SHORTEST_INTERVAL, order.seconds / _SAMPLES)
    sampler = Sampler(server.pid, server.home, probe, interval)
    sampling = asyncio.create_task(sampler.run())
    try:
        tally = await load.arrive(order.share * capacity, order.seconds)
    finally:
        sampling.cancel()
        with suppress(asyncio.CancelledError):
            await sampling
        await probe.close()
    return Findings(capacity, tally, sampler.samples, await _handled(scraper))


async def _handled(scraper: AsyncClient) -> int:
    """Wait until all events are handled; return how many are not in the end."""

    async def is_done() -> bool:
        return await waiting_events(scraper) == 0

    await until(is_done, _HANDLED_WITHIN_SECONDS)
    return await waiting_events(scraper)


@contextmanager
def deployed(*, on_servers: bool) -> Iterator[Deployment]:
    """Run `headwater serve` as in production: named keys with scopes, access log and metrics on."""
    with ExitStack() as stack:
        name = "soak-servers" if on_servers else "soak"
        home = stack.enter_context(scratch(name))
        keys = ServerKeys(home)
        headers = {name: keys.add(name, *scopes) for name, scopes in CALLERS.items()}
        port = free_port()
        settings = {"HEADWATER_HOME": str(home / "store")}
        if on_servers:
            settings = new_store(stack.enter_context(postgres()), stack.enter_context(valkey()))
        command: Command = [HEADWATER, "serve", FEATURES, "--port", str(port)]
        pid = stack.enter_context(
            serving(
                "soak",
                command,
                lambda: status(port, "/readyz", {}) == 200,
                {**settings, **keys.settings},
            )
        )
        yield Deployment(pid, port, home, headers)
