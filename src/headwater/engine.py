"""One open store: declarations, settings, backends and the steps that work on them, wired."""

from __future__ import annotations

import msgspec

from headwater import graph
from headwater.calls import Calls
from headwater.clock import Clock
from headwater.compute import Compute
from headwater.connect import connect
from headwater.offload import Offload
from headwater.ports import Backends
from headwater.refresh import Refresh
from headwater.registry import Registry
from headwater.serve import Reader
from headwater.settings import Settings


class Engine(msgspec.Struct, frozen=True):
    """The parts that the store's verbs and the worker's loop call."""

    registry: Registry
    settings: Settings
    clock: Clock
    backends: Backends
    offload: Offload
    calls: Calls
    reader: Reader
    compute: Compute
    refresh: Refresh

    async def close(self) -> None:
        """Closes the backends and the threads."""
        self.offload.close()
        await self.backends.lifecycle.close()


async def open_engine(registry: Registry, settings: Settings, clock: Clock) -> Engine:
    """Checks what was declared, connects the backends and wires everything."""
    graph.check(registry.features)
    backends = await connect(settings, clock)
    offload = Offload(settings.worker.threads)
    calls = Calls(offload, settings.worker.handler_timeout)
    return Engine(
        registry,
        settings,
        clock,
        backends,
        offload,
        calls,
        Reader(registry, backends.online, calls, clock),
        Compute(registry, calls, clock),
        Refresh(
            registry,
            backends.online,
            backends.offline,
            calls,
            clock,
            settings.worker.concurrency,
        ),
    )
