"""Run coroutines of the store: one call, or a server until a signal arrives."""

import asyncio
import gc
import os
import resource
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headwater.cli.output import note
from headwater.core.logging import log
from headwater.declarations.runtime import runtime_of
from headwater.errors import HomeError, TooManyHungThreadsError
from headwater.settings.environments import on_servers
from headwater.settings.schema import Settings
from headwater.store.feature_store import FeatureStore

if TYPE_CHECKING:
    from headwater.client import AsyncClient

S = TypeVar("S", bound="FeatureStore | AsyncClient")
T = TypeVar("T")


def run(store: S, call: Callable[[S], Awaitable[T]], *, create: bool = False) -> T:
    """Open the store, or connect to a server, await one call and close it.

    Raise HomeError if the embedded store does not exist, unless ``create`` is set.
    """
    announce_if_new = None
    if isinstance(store, FeatureStore):
        announce_if_new = new_store_notice(store.settings)
        if not create:
            _check_home(store)

    async def opened() -> T:
        async with store:
            if announce_if_new:
                announce_if_new()
            return await call(store)

    return asyncio.run(opened())


def new_store_notice(settings: Settings) -> Callable[[], None]:
    """Return a function that prints, after opening, that a new store was created."""
    home = _missing_home(settings)
    return lambda: None if home is None else note(f"Created a new store in {home}.")


def _check_home(store: FeatureStore) -> None:
    """Raise HomeError if the embedded store does not exist, instead of reading an empty one."""
    home = _missing_home(store.settings)
    if home is not None:
        entities = runtime_of(store).registry.entities.values()
        folders = {Path(entity.location.file).parent / store.settings.home for entity in entities}
        existing = [folder for folder in folders if folder.exists()]
        setting = f"HEADWATER_HOME={os.path.relpath(existing[0])}" if existing else "HEADWATER_HOME"
        raise HomeError(
            str(home),
            "does not exist",
            f"run this command in the folder with the store, or set {setting} or the home= of the "
            "features file; `headwater serve FILE` creates a new one",
        )


def _missing_home(settings: Settings) -> Path | None:
    """Return the folder of an embedded store that does not exist, or None."""
    if on_servers(settings):
        return None
    home = Path(settings.home).absolute()
    with suppress(OSError):  # opening the store reports why the folder cannot be read
        return None if home.exists() else home
    return None


def run_long(main: Coroutine[Any, Any, T]) -> T:
    """Run a server or a worker until it ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems refuse the limit that they report
        # As many files and sockets as the system allows.
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with long_runner() as runner:
        try:
            return runner.run(main)
        except TooManyHungThreadsError as error:
            log.error("worker exits: too many hung threads", error=str(error))
            log.flush()
            sys.exit(os.EX_SOFTWARE)


def long_runner() -> asyncio.Runner:
    """Return a runner for a long process: on uvloop if installed, with rare collections."""
    # Loaded modules live forever and the objects of an event die young. Collecting after every few
    # hundred objects would take a tenth of a worker's time.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
    return asyncio.Runner(
        loop_factory=import_module("uvloop").new_event_loop if find_spec("uvloop") else None
    )
