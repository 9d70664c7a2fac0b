"""Running the store's coroutines from a command: briefly, or until a signal comes."""

import asyncio
import gc
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from headwater.backends.connect import on_servers
from headwater.cli.output import note
from headwater.core.logging import log
from headwater.core.thread_offload import THREAD_NAME
from headwater.errors import HomeError, HungHandlerError
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

T = TypeVar("T")

_OBJECTS_BETWEEN_COLLECTIONS = 20_000

_THREADS_SECONDS = 1.0

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    store: FeatureStore, verb: Callable[[FeatureStore], Awaitable[T]], *, make: bool = False
) -> T:
    """Opens the store, runs one verb and closes the store, whatever becomes of the verb.

    Only a verb that puts something into a store makes one where there is none.
    """
    tell_if_made = telling_if_made(store.settings)
    if not make:
        _check_present(store.settings)

    async def closing() -> T:
        async with store:
            tell_if_made()
            return await verb(store)

    return asyncio.run(closing())


def telling_if_made(settings: Settings) -> Callable[[], None]:
    """Gives a call for when the store is open, which says so if there was none by now."""
    home = _absent_home(settings)
    return lambda: None if home is None else note(f"made a new store in {home}")


def _check_present(settings: Settings) -> None:
    """Refuses an embedded store that nobody has made: an empty one would answer for another."""
    home = _absent_home(settings)
    if home is not None:
        raise HomeError(
            str(home),
            "is not there",
            "run this where it is, or set HEADWATER_HOME, or the home= of the features file, "
            "to its folder; `headwater serve` and `headwater events publish` make a new one",
        )


def _absent_home(settings: Settings) -> Path | None:
    """The folder of an embedded store that is not there."""
    if on_servers(settings):
        return None
    home = Path(settings.home).absolute()
    with suppress(OSError):  # opening it says what keeps us from looking
        return None if home.exists() else home
    return None


def run_long(main: Coroutine[Any, Any, T]) -> T:
    """Runs a server or a worker to its end."""
    try:
        with long_runner() as runner:
            result = runner.run(main)
    except* HungHandlerError as hung:
        # Its thread would keep an orderly exit waiting for ever.
        for error in _leaves(hung):
            log.error("worker ends", error=str(error))
        os._exit(os.EX_SOFTWARE)
    _end_if_threads_hang()
    return result


def _leaves(group: BaseExceptionGroup[HungHandlerError]) -> Iterator[HungHandlerError]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _end_if_threads_hang() -> None:
    """Ends the process when a sync function still runs: an orderly exit would wait for it."""
    until = time.monotonic() + _THREADS_SECONDS
    for thread in threading.enumerate():
        if thread.name.startswith(THREAD_NAME):
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                log.flush()
                os._exit(os.EX_OK)


def long_runner() -> asyncio.Runner:
    """A runner for a process that stays: on uvloop where it is installed, with a calm collector."""
    # What is loaded by now stays for good, and what an event makes dies young: looking at all of
    # it for every few hundred objects would take a tenth of a worker's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_COLLECTIONS)
    return asyncio.Runner(
        loop_factory=import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    )


def stop_on_signal(stop: Callable[[], None]) -> None:
    """Calls ``stop`` on the first SIGTERM or SIGINT; the second ends the process at once."""
    loop = asyncio.get_running_loop()
    asked: list[int] = []

    # One handler for both times: two signals in quick succession reach the loop together.
    def on_signal(number: int) -> None:
        asked.append(number)
        if len(asked) == 1:
            stop()
        else:
            log.flush()
            os._exit(128 + number)

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal, number)
