"""Time limits for calls, cheap enough for many thousand calls a second."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class DeadlineError(Exception):
    """A call exceeded its time limit."""


class Slot:
    """A place for one call at a time; each ``with slot:`` block has the full time limit."""

    __slots__ = ("_is_overdue", "_started", "label", "loop", "task")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.task: asyncio.Task[Any] | None = None
        """The task of the call; None if the next call may run in another task."""
        self.label: tuple[object, ...] = ()
        """The function of the call, and its arguments."""
        self._started: float | None = None
        self._is_overdue = False

    @property
    def is_used(self) -> bool:
        """Whether a call is running."""
        return self._started is not None

    def __enter__(self) -> None:
        if self.task is None:
            self.task = asyncio.current_task()
        self._started = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._started = None
        if self._is_overdue:
            self._is_overdue = False
            if self.task and self.task.uncancel() == 0 and kind is asyncio.CancelledError:
                raise DeadlineError

    def cancel_if_started_by(self, moment: float) -> None:
        is_late = self._started is not None and self._started <= moment
        if self.task and is_late and not self._is_overdue:
            self._is_overdue = True
            self.task.cancel()


class _SlotInUse:
    """A context manager, because a generator costs more than a small handler."""

    __slots__ = ("_slot", "_slots")

    def __init__(self, slots: set[Slot], loop: asyncio.AbstractEventLoop) -> None:
        self._slots = slots
        self._slot = Slot(loop)

    def __enter__(self) -> Slot:
        self._slots.add(self._slot)
        return self._slot

    def __exit__(self, *_: object) -> None:
        self._slots.discard(self._slot)


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
        self.slots: set[Slot] = set()
        self._watched: set[asyncio.AbstractEventLoop] = set()

    def slot(self) -> _SlotInUse:
        """Return a context manager with a slot for the calls of a coroutine."""
        loop = asyncio.get_running_loop()
        if loop not in self._watched:
            self._watched.add(loop)
            loop.call_later(self.seconds / 4, self._check, loop)
        return _SlotInUse(self.slots, loop)

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        slots = [slot for slot in tuple(self.slots) if slot.loop is loop]
        for slot in slots:
            slot.cancel_if_started_by(time.monotonic() - self.seconds)
        if slots:
            loop.call_later(self.seconds / 4, self._check, loop)
        else:
            self._watched.discard(loop)
