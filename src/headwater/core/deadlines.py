"""A limit on how long a call may run, cheap enough to set for each of many thousand a second."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class DeadlineError(Exception):
    """A call ran longer than it may and was cancelled."""


class Slot:
    """The place of one task under a deadline; each ``with slot:`` in it is limited anew."""

    __slots__ = ("_overdue", "_started", "loop", "task", "thread")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.loop = task.get_loop()
        self._started: float | None = None
        self._overdue = False
        self.thread = 0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def pause(self) -> None:
        """Stops the clock: what is inside waits for its turn and does not run yet."""
        self._started = None

    def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Starts the clock in the thread that runs the function, and runs it."""
        self.thread = threading.get_ident()
        self._started = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.thread = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._started = None
        if self._overdue:
            self._overdue = False
            if self.task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise DeadlineError

    def cancel_if_started_by(self, moment: float) -> None:
        if self._started is not None and self._started <= moment and not self._overdue:
            self._overdue = True
            self.task.cancel()


@contextmanager
def ending(seconds: float) -> Iterator[Callable[[], None]]:
    """Gives a call after which the process ends by force, unless it has left in so many seconds.

    For the end of a process whose functions may refuse to: what was acknowledged is durable.
    """
    timer = threading.Timer(seconds, os._exit, (os.EX_SOFTWARE,))
    timer.daemon = True

    def begin() -> None:
        if not timer.is_alive() and not timer.finished.is_set():
            timer.start()

    try:
        yield begin
    finally:
        timer.cancel()


class Deadline:
    """Cancels calls that run too long, found by a look at all of them now and then.

    A timer for each call, as ``asyncio.timeout`` sets, costs more than a small handler.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slots: set[Slot] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Gives the current task a slot for as long as it is inside."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a task that it can cancel")
        slot = Slot(task)
        self._slots.add(slot)
        if slot.loop not in self._watched:
            self._watched.add(slot.loop)
            slot.loop.call_later(self.seconds / 4, self._look, slot.loop)
        try:
            yield slot
        finally:
            self._slots.discard(slot)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        own = [slot for slot in tuple(self._slots) if slot.loop is loop]
        for slot in own:
            slot.cancel_if_started_by(time.monotonic() - self.seconds)
        if own:
            loop.call_later(self.seconds / 4, self._look, loop)
        else:
            self._watched.discard(loop)
