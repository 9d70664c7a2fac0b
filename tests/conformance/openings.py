"""Opening the backends of one store any number of times."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.backends.connect import connect
from headwater.core.clock import SystemClock
from headwater.ports import Backends
from headwater.settings.schema import Settings
from headwater.testing.conformance import Connect


@asynccontextmanager
async def openings(settings: Settings) -> AsyncIterator[Connect]:
    """Return a function that opens the store of these settings; close all openings at the end."""
    opened: list[Backends] = []

    async def opening(*, group: str = "workers") -> Backends:
        opened.append(
            await connect(settings.replace(worker={"consumer_group": group}), SystemClock())
        )
        return opened[-1]

    yield opening
    for backends in opened:
        await backends.lifecycle.close()
