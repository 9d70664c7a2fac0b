"""Single flight: concurrent calls with one key share a task."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec.structs import replace

from headwater.features.call_scope import begin_call, current_scope, enter
from headwater.features.running_calls import RunningCall, UserCall

T = TypeVar("T")

Run = Callable[[], Coroutine[Any, Any, T]]
OnAbandoned = Callable[[BaseException], None]
"""Called with the error of a task that failed after its callers had gone."""


class _Flight:
    """A task, the call that it runs, and the number of its callers."""

    __slots__ = ("call", "callers", "task")

    def __init__(self, call: RunningCall, task: asyncio.Task[Any]) -> None:
        self.call = call
        self.task = task
        self.callers = 0


class SingleFlight(Generic[T]):
    """Shares one task among the callers that want the same result at the same time on one loop."""

    def __init__(self) -> None:
        self._flights: dict[tuple[int, str], _Flight] = {}

    async def do(
        self,
        key: str,
        call: UserCall,
        run: Run[T],
        on_abandoned: OnAbandoned,
        *,
        is_kept: bool = True,
    ) -> T:
        """Return the result of the task with that key.

        The task outlives callers that give up if its result ``is_kept``, for later callers.
        Otherwise it is cancelled with the last of them. Raise RecursionError if the task waits for
        this caller.
        """
        place = (id(asyncio.get_running_loop()), key)
        flight = self._flights.get(place) or self._start(place, call, run, on_abandoned)
        waiting = current_scope().call
        if waiting is not None:
            flight.call.share(waiting)
        flight.callers += 1
        try:
            # Unlike a plain await, this does not cancel the task if the caller is cancelled.
            await asyncio.wait((flight.task,))
            result: T = flight.task.result()
            return result
        finally:
            flight.callers -= 1
            if not flight.callers and not is_kept and not flight.task.done():
                self._remove(place, flight)  # the next caller starts another task
                flight.task.cancel()
            if waiting is not None:
                flight.call.sharers.remove(waiting)

    def _start(
        self, place: tuple[int, str], call: UserCall, run: Run[T], on_abandoned: OnAbandoned
    ) -> _Flight:
        begun = begin_call(call)
        task = asyncio.ensure_future(_run(begun, run))
        flight = self._flights[place] = _Flight(begun, task)
        task.add_done_callback(partial(self._end, place, flight, on_abandoned))
        return flight

    def _end(
        self,
        place: tuple[int, str],
        flight: _Flight,
        on_abandoned: OnAbandoned,
        task: asyncio.Task[T],
    ) -> None:
        self._remove(place, flight)
        error = None if task.cancelled() else task.exception()
        if error is not None and not flight.callers:
            on_abandoned(error)

    def _remove(self, place: tuple[int, str], flight: _Flight) -> None:
        if self._flights.get(place) is flight:
            del self._flights[place]


async def _run(call: RunningCall, run: Run[T]) -> T:
    enter(replace(current_scope(), call=call))  # ends with the task
    try:
        return await run()
    finally:
        call.is_over = True
