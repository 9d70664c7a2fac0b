"""Values that belong to an event loop, such as connections, and are closed with it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_Lifetime = AsyncGenerator[None, None]


class ByLoop(Generic[T]):
    """One value for each event loop; it is closed with its loop at the latest."""

    def __init__(self, close: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        self._close = close
        self._kept: dict[asyncio.AbstractEventLoop, tuple[T, _Lifetime]] = {}
        self._lock = threading.Lock()

    def current(self) -> T | None:
        """Return the value of the running event loop; None if it has none, or no loop runs."""
        try:
            kept = self._kept.get(asyncio.get_running_loop())
        except RuntimeError:
            return None  # this thread has no running loop
        return kept and kept[0]

    async def keep(self, value: T) -> T:
        """Keep a value until the running event loop ends, and return it."""
        loop, lifetime = asyncio.get_running_loop(), self._lifetime(value)
        await anext(lifetime)
        with self._lock:
            alive = {other: kept for other, kept in self._kept.items() if not other.is_closed()}
            self._kept = {**alive, loop: (value, lifetime)}
        return value

    async def _lifetime(self, value: T) -> _Lifetime:
        """Close a value at the end; `asyncio.run` ends the generators that its loop leaves."""
        try:
            yield
        finally:
            await self._close(value)

    async def close(self, *loops: asyncio.AbstractEventLoop) -> None:
        """Close the values of some event loops, or of all."""
        with self._lock:
            ended = [(loop, self._kept.pop(loop, None)) for loop in loops or [*self._kept]]
        for loop, kept in ended:
            if kept is None:
                continue
            if loop is asyncio.get_running_loop():
                await kept[1].aclose()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(_end(kept[1]), loop)
                await asyncio.wrap_future(closing)


async def _end(lifetime: _Lifetime) -> None:
    await lifetime.aclose()
