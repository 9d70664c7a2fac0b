"""The open engines of a store, by event loop.

This module loads little: everything that only an open store needs is imported when one is opened.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from headwater.core.clock import Clock
from headwater.declarations.registry import Registry
from headwater.settings.environments import on_servers
from headwater.settings.schema import Settings

if TYPE_CHECKING:
    from headwater.engine.engine import Engine

_Lifetime = AsyncGenerator["Engine", None]


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
                    from headwater.engine.engine import open_engine  # noqa: PLC0415 - loaded with the engine

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
