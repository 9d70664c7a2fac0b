"""Settling asyncio futures from another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple


class Settlement(NamedTuple):
    """A future and its result or error."""

    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


def settle(settlements: Iterable[Settlement]) -> None:
    """Settle the futures, waking each event loop once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Settlement]] = {}
    for settlement in settlements:
        by_loop.setdefault(settlement.future.get_loop(), []).append(settlement)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_in_loop, group)
        except RuntimeError:
            continue  # the loop was closed, and its waiters with it


def _settle_in_loop(settlements: list[Settlement]) -> None:
    for future, result, error in settlements:
        if future.done():
            continue  # the waiter was cancelled
        if error is None:
            future.set_result(result)
        elif isinstance(error, StopIteration):
            # A future cannot carry StopIteration; it would end the coroutine that awaits it.
            future.set_exception(RuntimeError(f"the function raised StopIteration: {error}"))
        else:
            future.set_exception(error)
