"""Waiting for a condition that comes true in another process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

_POLL_SECONDS = 0.01


async def until(condition: Callable[[], Awaitable[bool]], seconds: float) -> bool:
    """Waits for so long at most; says whether the condition came true."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                if await condition():
                    return True
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
