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


class Engines:
    """The open engines of a store: one for all event loops, or with servers one for each.

    Connections to servers belong to the loop that opened them, and are closed with it; embedded
    backends work with every loop.
    """

    def __init__(self) -> None:
        self._by_loop: ByLoop[Engine] = ByLoop(lambda engine: engine.close())
        self.shared: Engine | None = None
        self._opening: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
        self._lock = threading.Lock()

    def current(self) -> Engine | None:
        """Return the engine for the running event loop, or None if it is not open."""
        return self._by_loop.current() if self.shared is None else self.shared

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
            return await self._by_loop.keep(engine)
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
