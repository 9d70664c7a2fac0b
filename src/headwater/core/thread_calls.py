"""A call of a sync function in a thread, and the way of its result back to the event loop."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from headwater.core.deadlines import DeadlineError

T = TypeVar("T")


class ThreadsExhaustedError(DeadlineError):
    """A function was not called: too many threads hang, and some of them in this function."""


class Named(Protocol):
    """The declaration of a function."""

    @property
    def name(self) -> str: ...


class Threads(Protocol):
    """The threads that run calls."""

    def submit(self, call: ThreadCall[Any]) -> None: ...

    def waiting(self, call: ThreadCall[Any]) -> AbstractContextManager[None]: ...


class ThreadCall(Generic[T]):
    """A call of a sync function in a thread.

    Its result raises DeadlineError if the function takes longer than the seconds, and
    ThreadsExhaustedError if too many threads hang, some of them in this function.

    Its caller is an event loop. The caller may abandon the call; the function then runs on, but has
    no effect: its result is dropped, and verbs of the store refuse it.
    """

    __slots__ = (
        "_arguments",
        "_context",
        "_error",
        "_function",
        "_offload",
        "_on_done",
        "_result",
        "declared",
        "inbox",
        "is_abandoned",
        "seconds",
        "started",
        "thread",
        "waits_for",
    )

    def __init__(
        self,
        offload: Threads,
        declared: Named,
        seconds: float,
        context: contextvars.Context,
        function: Callable[..., T],
        *arguments: Any,
    ) -> None:
        self._offload = offload
        self._context = context
        self._function = function
        self._arguments = arguments
        self._result: T
        self._error: BaseException | None = None
        self._on_done: Callable[[ThreadCall[T]], None]
        self.declared = declared
        self.seconds = seconds
        self.inbox: Inbox
        self.is_abandoned = False
        self.started: float
        self.thread: int
        self.waits_for: Future[Any] | None = None
        """The verb of the store that the function waits for."""

    def __await__(self) -> Generator[ThreadCall[T], None, T]:
        """Return the result; only for a coroutine of `run_concurrently`, which starts the call."""
        yield self
        return self.result()

    def start(self, on_done: Callable[[ThreadCall[T]], None]) -> None:
        """Run the function as soon as a thread is free; then call ``on_done`` in this loop."""
        self._on_done = on_done
        self._offload.submit(self)

    def cancel(self) -> None:
        """Abandon the call: if it has not begun, it will not."""
        self.is_abandoned = True
        if self.waits_for is not None:
            self.waits_for.cancel()

    def fail(self, error: BaseException) -> None:
        """Let the result raise an error, unless the caller has abandoned the call."""
        if not self.is_abandoned:
            self._error = error

    def perform(self) -> None:
        """Call the function, in a thread, unless the call has failed."""
        if self._error is not None:
            return
        context = self._context
        del self._context  # it will refer to this call: a cycle for the garbage collector
        try:
            self._result = context.run(self._run)
        except StopIteration as error:
            # Raised again, it would end the coroutine that awaits the result.
            self.fail(RuntimeError(f"the function raised StopIteration: {error}"))
        except BaseException as error:  # noqa: BLE001 - user code may raise anything; its caller gets it
            self.fail(error)

    def _run(self) -> T:
        caller.set(self)
        return self._function(*self._arguments)

    def deliver(self) -> None:
        self._on_done(self)

    def result(self) -> T:
        error, self._error = self._error, None
        if error is None:
            return self._result
        try:
            raise error
        finally:
            del error  # its traceback refers to this frame

    @contextmanager
    def waiting_for(self, verb: Future[Any]) -> Iterator[None]:
        """Do not count the thread as working while it waits for something that may need one."""
        self.waits_for = verb
        if self.is_abandoned:
            verb.cancel()
        try:
            with self._offload.waiting(self):
                yield
        finally:
            self.waits_for = None


caller: contextvars.ContextVar[ThreadCall[Any] | None] = contextvars.ContextVar(
    "headwater_caller", default=None
)
"""Set in worker threads, and in threads started from them with a copy of their context.

It is not part of a feature's call scope: it says where blocking calls are run, not what they see.
"""


class Inbox:
    """The results for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done: deque[ThreadCall[Any]] = deque()
        self.is_starting = False
        """Whether the loop will soon start a thread if none works."""
        self.is_checking = False
        """Whether the loop checks waiting calls and time limits periodically."""
        self._is_notified = False

    def notify(self) -> None:
        """Let the loop deliver the results; called in a thread."""
        if not self._is_notified:
            self._is_notified = True
            try:
                self.loop.call_soon_threadsafe(self.deliver)
            except RuntimeError:
                return  # the loop was closed, and its waiters with it

    def deliver(self) -> None:
        self._is_notified = False
        while self.done:
            call = self.done.popleft()
            if not call.is_abandoned:
                call.deliver()
