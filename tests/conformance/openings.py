"""Opening the backends of one store any number of times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from conformance import Connect
from conformance.suite import LONG_LEASE
from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.ports import Backends
from headwater.settings.schema import Settings


@asynccontextmanager
async def openings(settings: Settings) -> AsyncIterator[Connect]:
    """Return a function that opens the store of these settings; close all openings at the end."""
    opened: list[Backends] = []

    async def opening(*, group: str = "workers", lease_ttl: float = LONG_LEASE) -> Backends:
        worker = {"consumer_group": group, "lease_ttl": lease_ttl}
        opened.append(await connect(settings.replace(worker=worker), SystemClock()))
        return opened[-1]

    yield opening
    for backends in opened:
        await backends.lifecycle.close()
