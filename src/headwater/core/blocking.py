"""Blocking forms of async verbs, for scripts, notebooks and sync handlers."""

from __future__ import annotations

import asyncio
import builtins
import threading
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

import msgspec

from headwater.core.tables import Table
from headwater.core.thread_calls import caller
from headwater.errors import ClosedError, InvalidInputError

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)


class SyncLoop:
    """The event loop, in a thread, that blocking verbs run on outside of handlers."""

    def __init__(
        self, name: str = "store.sync", instead: str = "await the verb of the store itself"
    ) -> None:
        self._name = name
        self._instead = instead
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop, started by the first blocking verb."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end and return its result."""
        if _in_event_loop() and not in_notebook():
            call.close()
            raise InvalidInputError(
                f"{self._name} blocks, and this thread runs an event loop, as in async code; "
                f"{self._instead} instead"
            )
        # Inside a sync handler the verb runs on the loop of the handler's batch and in the
        # handler's context, so that it sees the handler's own writes.
        inside = caller.get()
        if inside is None:
            return asyncio.run_coroutine_threadsafe(call, self.started()).result()
        if inside.is_abandoned:
            call.close()
            raise ClosedError(
                f"{inside.declared.name!r} has timed out; what it does now has no effect"
            )
        verb = asyncio.run_coroutine_threadsafe(call, inside.inbox.loop)
        with inside.waiting_for(verb):
            return verb.result()

    async def run_apart(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the thread, and wait for it on another loop."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self.started()))

    def stop(self) -> None:
        """End the thread."""
        with self._lock:
            if self.loop is not None and self._thread is not None:
                self.loop.call_soon_threadsafe(self.loop.stop)
                self._thread.join()
                self.loop.close()
                self.loop = self._thread = None

    def started(self) -> asyncio.AbstractEventLoop:
        """Return the loop; start its thread if necessary."""
        with self._lock:
            if self.loop is None:
                self.loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self.loop.run_forever, name="headwater-verbs", daemon=True
                )
                self._thread.start()
            return self.loop


class Blocking(Generic[V_co]):
    """The blocking form of a group of async verbs."""

    def __init__(self, verbs: V_co, loop: SyncLoop) -> None:
        self._verbs = verbs
        self._loop = loop

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._verbs!r}>"


def blocking(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]],
    at_once: Callable[Concatenate[V, P], T | msgspec.UnsetType] | None = None,
    tabled: Callable[..., Any] | None = None,
) -> Callable[Concatenate[Blocking[V], P], T]:
    """Return the blocking form of an async verb, with the same signature and docstring.

    It runs the verb of that name, which a subclass of the group may have overridden.
    In a sync handler ``at_once`` is tried first: two hops between threads cost more than a read.
    Elsewhere, a list becomes a `Table`, and any other result what ``tabled`` makes of it.
    """

    @wraps(verb)
    def call(self: Blocking[V], /, *args: P.args, **kwargs: P.kwargs) -> T:
        inside = caller.get()
        if at_once is not None and inside is not None and not inside.is_abandoned:
            result = at_once(self._verbs, *args, **kwargs)
            if not isinstance(result, msgspec.UnsetType):
                return result
        method: Callable[P, Coroutine[Any, Any, T]] = getattr(self._verbs, verb.__name__)
        returned = self._loop.run(method(*args, **kwargs))
        if inside is not None:
            return returned
        if tabled is not None:
            return cast("T", tabled(returned, *args, **kwargs))
        return cast("T", Table(returned)) if isinstance(returned, list) else returned

    return call


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def in_notebook() -> bool:
    """Return whether this is a cell of IPython, whose kernel runs a loop for top-level await.

    Nothing else needs that loop while the cell runs, so a verb may block it.
    """
    return "get_ipython" in vars(builtins)
