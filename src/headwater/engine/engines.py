"""The open engines of a store, by event loop.

This module loads little: everything that only an open store needs is imported when one is opened.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from headwater.core.by_loop import ByLoop
from headwater.core.clock import Clock
from headwater.declarations.registry import Registry
from headwater.settings.schema import Settings, on_servers

if TYPE_CHECKING:
    from headwater.engine.engine import Engine


class _OfLoop:
    """The engine of one event loop, and the lock that lets one task at a time open it."""

    def __init__(self) -> None:
        self.engine: Engine | None = None
        self.opening = asyncio.Lock()

    async def close(self) -> None:
        if self.engine is not None:
            await self.engine.close()


class Engines:
    """The open engines of a store: one for all event loops, or with servers one for each.

    Connections to servers belong to the loop that opened them, and are closed with it; embedded
    backends work with every loop.
    """

    def __init__(self) -> None:
        self._by_loop: ByLoop[_OfLoop] = ByLoop(_OfLoop.close)
        self.shared: Engine | None = None
        self._lock = threading.Lock()

    def current(self) -> Engine | None:
        """Return the engine for the running event loop, or None if it is not open."""
        if self.shared is not None:
            return self.shared
        of_loop = self._by_loop.current()
        return None if of_loop is None else of_loop.engine

    async def open(self, registry: Registry, settings: Settings, clock: Clock) -> Engine:
        """Return the engine for the running event loop; open it if necessary."""
        engine = self.current()
        if engine is None:
            of_loop = self._by_loop.current() or await self._by_loop.keep(_OfLoop())
            async with of_loop.opening:
                engine = self.current()
                if engine is None:
                    from headwater.engine.engine import open_engine  # noqa: PLC0415 - loaded with the engine

                    engine = await open_engine(registry, settings, clock)
                    if not on_servers(settings):
                        return await self._share(engine)
                    of_loop.engine = engine
                    if self._by_loop.current() is not of_loop:  # the store was closed meanwhile
                        await self._by_loop.keep(of_loop)
        return engine

    async def _share(self, engine: Engine) -> Engine:
        with self._lock:
            if self.shared is None:
                self.shared = engine
                return engine
            shared = self.shared
        await engine.close()  # another loop has opened one meanwhile
        return shared

    async def close(self, sync: asyncio.AbstractEventLoop | None) -> None:
        """Close the engine of this loop and that of the loop of ``store.sync``."""
        with self._lock:
            shared, self.shared = self.shared, None
        if shared is not None:
            await shared.close()
        own = asyncio.get_running_loop()
        await self._by_loop.close(own, *([] if sync is None else [sync]))
