"""Time limits for calls, cheap enough for many thousand calls a second."""

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
    """A call exceeded its time limit and was cancelled."""


class Slot:
    """A task under a deadline; each ``with slot:`` block has the full time limit."""

    __slots__ = ("_is_overdue", "_started", "loop", "task", "thread")

    def __init__(self, task: asyncio.Task[object]) -> None:
        self.task = task
        self.loop = task.get_loop()
        self._started: float | None = None
        self._is_overdue = False
        self.thread = 0

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def pause(self) -> None:
        """Stop the clock while the call waits for a thread."""
        self._started = None

    def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Start the clock and run the function; called in a worker thread."""
        self.thread = threading.get_ident()
        self._started = time.monotonic()
        try:
            return function(*arguments)
        finally:
            self.thread = 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._started = None
        if self._is_overdue:
            self._is_overdue = False
            if self.task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise DeadlineError

    def cancel_if_started_by(self, moment: float) -> None:
        if self._started is not None and self._started <= moment and not self._is_overdue:
            self._is_overdue = True
            self.task.cancel()


@contextmanager
def force_exit_after(seconds: float) -> Iterator[Callable[[], None]]:
    """Yield a function that starts a timer which ends the process unless the block ends first.

    For a shutdown that a user function could block; acknowledged writes are durable.
    """
    timer = threading.Timer(seconds, os._exit, (os.EX_SOFTWARE,))
    timer.daemon = True

    def start() -> None:
        if not timer.is_alive() and not timer.finished.is_set():
            timer.start()

    try:
        yield start
    finally:
        timer.cancel()


class Deadline:
    """Cancels calls that exceed a time limit, by checking all running calls periodically.

    A timer per call, as ``asyncio.timeout`` sets, costs more than a small handler.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._slots: set[Slot] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Yield a slot for the current task."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a deadline needs a running task to cancel")
        slot = Slot(task)
        self._slots.add(slot)
        if slot.loop not in self._watched:
            self._watched.add(slot.loop)
            slot.loop.call_later(self.seconds / 4, self._check, slot.loop)
        try:
            yield slot
        finally:
            self._slots.discard(slot)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        slots = [slot for slot in tuple(self._slots) if slot.loop is loop]
        for slot in slots:
            slot.cancel_if_started_by(time.monotonic() - self.seconds)
        if slots:
            loop.call_later(self.seconds / 4, self._check, loop)
        else:
            self._watched.discard(loop)
