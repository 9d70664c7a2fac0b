"""The network of a run: a proxy in front of each server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tests.proxy import Proxy

_CUT_EVERY = 5


class Network:
    """Proxies in a thread of their own, so that they work while the driver is busy."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._proxies: list[Proxy] = []

    @contextmanager
    def open(self) -> Iterator[None]:
        """Run the proxies for the block."""
        thread = threading.Thread(target=self._loop.run_forever, name="network")
        thread.start()
        try:
            yield
        finally:
            for proxy in self._proxies:
                asyncio.run_coroutine_threadsafe(proxy.close(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def proxy(self, target: int = 0) -> Proxy:
        """Return an open proxy in front of a port."""
        proxy = Proxy(target)
        self._proxies.append(proxy)
        asyncio.run_coroutine_threadsafe(proxy.open(), self._loop).result()
        return proxy


@contextmanager
def disturbed(
    lines: Sequence[Proxy],
    *,
    delay: float = 0.0,
    holds: bool = False,
    cuts: bool = False,
    loses_answers: bool = False,
) -> Iterator[None]:
    """During the block, let data arrive late or after it, lose answers, or cut some in half."""
    for line in lines:
        line.delay, line.holds, line.cut_every = delay, holds, _CUT_EVERY * cuts
        line.loses_answers = loses_answers
    try:
        yield
    finally:
        for line in lines:
            line.delay, line.holds, line.cut_every = 0.0, False, 0
            line.loses_answers = False
