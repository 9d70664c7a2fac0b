"""Work in threads that is interrupted when its caller is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

# An interrupt has no effect on work that has not begun to listen, so it is repeated.
_SECONDS_BETWEEN_INTERRUPTS = 0.05


class _Work:
    """What can interrupt the work of a thread at the moment."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._interrupts: list[Callable[[], None]] = []

    @contextmanager
    def interrupted_by(self, interrupt: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                self._interrupts.remove(interrupt)

    def interrupt(self) -> None:
        with self._lock:
            for interrupt in self._interrupts:
                interrupt()


_work: ContextVar[_Work | None] = ContextVar("work", default=None)


@contextmanager
def interrupted_by(interrupt: Callable[[], None]) -> Iterator[None]:
    """Call ``interrupt``, from another thread, if the caller of `in_thread` is cancelled meanwhile.

    Outside of `in_thread` nothing is interrupted.
    """
    work = _work.get()
    if work is None:
        yield
        return
    with work.interrupted_by(interrupt):
        yield


async def in_thread(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Run work in a thread, as `asyncio.to_thread` does.

    If the caller is cancelled, the work is interrupted, and this returns when it has ended: its
    memory is free then, and files that it used can be removed.
    """
    running = _Work()
    token = _work.set(running)
    try:
        thread = asyncio.ensure_future(asyncio.to_thread(work, *args, **named))
    finally:
        _work.reset(token)
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        while not thread.done():
            running.interrupt()
            with suppress(asyncio.CancelledError):
                await asyncio.wait({thread}, timeout=_SECONDS_BETWEEN_INTERRUPTS)
        if not thread.cancelled():
            thread.exception()  # of work that is not wanted any more
        raise
