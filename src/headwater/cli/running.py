"""Running the store's coroutines from a command: briefly, or until a signal comes."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

from headwater.logs import log
from headwater.store import FeatureStore

T = TypeVar("T")

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(store: FeatureStore, verb: Callable[[FeatureStore], Awaitable[T]]) -> T:
    """Opens the store, runs one verb and closes the store, whatever becomes of the verb."""

    async def closing() -> T:
        async with store:
            return await verb(store)

    return asyncio.run(closing())


def run_long(main: Coroutine[Any, Any, T]) -> T:
    """Runs a server or a worker to its end, on uvloop where it is installed."""
    factory = import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)


def stop_on_signal(stop: Callable[[], None]) -> None:
    """Calls ``stop`` on the first SIGTERM or SIGINT; the second ends the process at once."""
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        log.flush()
        os._exit(128 + number)

    def first() -> None:
        for number in SIGNALS:
            loop.add_signal_handler(number, end, number)
        stop()

    for number in SIGNALS:
        loop.add_signal_handler(number, first)
