"""Waiting for a condition in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_POLL_SECONDS = 0.01


async def until(condition: Callable[[], Awaitable[bool]], seconds: float | None = None) -> bool:
    """Wait for the condition; return False after the time limit, if there is one."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
