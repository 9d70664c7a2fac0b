"""The engine: one open store, and the engines of all event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from msgspec.structs import asdict

from headwater.backends.connect import connect, on_servers
from headwater.backends.observed import count_context
from headwater.contexts.assembler import Assembler
from headwater.contexts.recorded import RecordedContexts, check_signing
from headwater.contexts.retrieval import Retrievers
from headwater.core.clock import Clock
from headwater.core.thread_offload import Offload
from headwater.declarations import graph
from headwater.declarations.registry import Registry
from headwater.features.event_handlers import EventHandlers
from headwater.features.reader import Reader
from headwater.features.refresh import Refresh
from headwater.features.services import Services
from headwater.features.user_calls import ContextCalls, FeatureCalls
from headwater.ports import Backends
from headwater.settings.schema import Settings


class Engine(Services, frozen=True):
    """An open store: the services, and the parts that its verbs and workers call."""

    reader: Reader
    handlers: EventHandlers
    refresh: Refresh
    retrievers: Retrievers
    assembler: Assembler
    recorded: RecordedContexts

    async def close(self) -> None:
        """Close the threads and the backends."""
        self.offload.close()
        await self.backends.lifecycle.close()


async def open_engine(registry: Registry, settings: Settings, clock: Clock) -> Engine:
    """Check the declarations, connect the backends and wire the parts."""
    graph.check(registry.features)
    check_signing(settings)
    backends = await connect(settings, clock)
    async with AsyncExitStack() as undo:
        undo.push_async_callback(backends.lifecycle.close)
        engine = _wire(registry, settings, clock, backends)
        undo.pop_all()
    return engine


def _wire(registry: Registry, settings: Settings, clock: Clock, backends: Backends) -> Engine:
    offload = Offload(settings.worker.threads)
    services = Services(
        registry,
        settings,
        clock,
        backends,
        offload,
        FeatureCalls(offload, settings.worker.handler_timeout),
        ContextCalls(offload, settings.context.timeout),
    )
    reader = Reader(services)
    assembler = Assembler(services, reader, count_context)
    return Engine(
        **asdict(services),
        reader=reader,
        handlers=EventHandlers(services),
        refresh=Refresh(services),
        retrievers=Retrievers(services),
        assembler=assembler,
        recorded=RecordedContexts(services, reader, assembler),
    )


_Lifetime = AsyncGenerator[Engine, None]


class Engines:
    """The open engines of a store: one for all event loops, or with servers one for each.

    Connections to servers belong to the loop that opened them, and are closed with it; embedded
    backends work with every loop.
    """

    def __init__(self) -> None:
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[Engine, _Lifetime]] = {}
        self.shared: Engine | None = None
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._lock = threading.Lock()

    def current(self) -> Engine | None:
        """Return the engine for the running event loop, or None if it is not open."""
        if self.shared is not None:
            return self.shared
        try:
            bound = self._by_loop.get(asyncio.get_running_loop())
        except RuntimeError:
            return None  # this thread has no running loop
        return bound and bound[0]

    async def open(self, registry: Registry, settings: Settings, clock: Clock) -> Engine:
        """Return the engine for the running event loop; open it if necessary."""
        engine = self.current()
        if engine is None:
            async with self._opening_lock():
                engine = self.current()
                if engine is None:
                    engine = await open_engine(registry, settings, clock)
                    return await self._keep(engine, bound=on_servers(settings))
        return engine

    def _opening_lock(self) -> asyncio.Lock:
        """Return the lock that lets one task of a loop open the engine at a time."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._opening = {k: lock for k, lock in self._opening.items() if not k.is_closed()}
            return self._opening.setdefault(loop, asyncio.Lock())

    async def _keep(self, engine: Engine, *, bound: bool) -> Engine:
        if bound:
            return await self._bind(engine, asyncio.get_running_loop())
        with self._lock:
            if self.shared is None:
                self.shared = engine
                return engine
            shared = self.shared
        await engine.close()  # another loop has opened one meanwhile
        return shared

    async def _bind(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> Engine:
        """Keep an engine until its loop ends."""
        lifetime = _lifetime(engine)
        await anext(lifetime)
        with self._lock:
            alive = {k: bound for k, bound in self._by_loop.items() if not k.is_closed()}
            self._by_loop = {**alive, loop: (engine, lifetime)}
        return engine

    async def close(self, sync: asyncio.AbstractEventLoop | None) -> None:
        """Close the engine of this loop and that of the loop of ``store.sync``."""
        with self._lock:
            shared, self.shared = self.shared, None
            own = self._release(asyncio.get_running_loop())
            other = self._release(sync)
        if shared is not None:
            await shared.close()
        if own is not None:
            await own.aclose()
        if other is not None and sync is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_end(other), sync))

    def _release(self, loop: asyncio.AbstractEventLoop | None) -> _Lifetime | None:
        bound = None if loop is None else self._by_loop.pop(loop, None)
        return bound and bound[1]


async def _lifetime(engine: Engine) -> _Lifetime:
    """Yield an engine and close it at the end, which comes with the loop at the latest.

    `asyncio.run` closes the asynchronous generators that are left when its loop ends.
    """
    try:
        yield engine
    finally:
        await engine.close()


async def _end(lifetime: _Lifetime) -> None:
    await lifetime.aclose()
