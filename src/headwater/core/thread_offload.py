"""Running sync functions in threads: many calls share a thread hop, and a hung one is abandoned."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from headwater.core.deadlines import DeadlineError
from headwater.core.logging import log
from headwater.core.stacks import stack_of

T = TypeVar("T")

THREAD_NAME = "headwater-sync"
# A thread without a call for this time ends.
_IDLE_SECONDS = 10.0
# How often waiting calls and time limits are checked.
_CHECK_SECONDS = 0.002
# Calls that progress too slowly probably block, so threads are added. A busy event loop holds the
# interpreter lock for 5 ms at a time, in which no thread progresses.
_IDLE_PATIENCE_SECONDS = 0.001
_BUSY_PATIENCE_SECONDS = 0.02
# Calls are slow if fewer than this part of the waiting ones have finished within the patience.
_SLOW_PART = 8
# Results of quick calls are returned together, at the latest with the loop's next check.
_COLLECT_SECONDS = 0.0005


class ThreadsExhaustedError(DeadlineError):
    """A function was not called: too many threads hang, and some of them in this function."""


class Named(Protocol):
    """The declaration of a function."""

    @property
    def name(self) -> str: ...


class Call(Generic[T]):
    """A call of a sync function in a thread.

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
        offload: Offload,
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
        self._on_done: Callable[[Call[T]], None]
        self.declared = declared
        self.seconds = seconds
        self.inbox: _Inbox
        self.is_abandoned = False
        self.started: float
        self.thread: int
        self.waits_for: Future[Any] | None = None
        """The verb of the store that the function waits for."""

    def __await__(self) -> Generator[Call[T], None, T]:
        """Return the result; only for a coroutine of `run_concurrently`, which starts the call."""
        yield self
        return self.result()

    def start(self, on_done: Callable[[Call[T]], None]) -> None:
        """Run the function as soon as a thread is free; then call ``on_done`` in this loop."""
        self._on_done = on_done
        self._offload.submit(self)

    def cancel(self) -> None:
        """Abandon the call: if it has not begun, it will not."""
        self.is_abandoned = True
        if self.waits_for is not None:
            self.waits_for.cancel()

    def fail(self, error: BaseException) -> None:
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


caller: contextvars.ContextVar[Call[Any] | None] = contextvars.ContextVar(
    "headwater_caller", default=None
)
"""Set in worker threads, and in threads started from them with a copy of their context.

It is not part of a feature's frame: it says where blocking calls are run, not what they see.
"""


class _Inbox:
    """The results for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.done: deque[Call[Any]] = deque()
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


class _Progress:
    """How quickly calls finish, measured over a span in which threads could have run."""

    def __init__(self) -> None:
        self.finished = 0
        self._began = self._loop_began = 0.0

    def restart(self) -> None:
        self.finished = 0
        self._began, self._loop_began = time.monotonic(), time.thread_time()

    def is_slow(self, waiting: int) -> bool:
        """Return whether calls seem to block; called in the loop, whose own work takes time."""
        elapsed = time.monotonic() - self._began
        idle = elapsed - (time.thread_time() - self._loop_began)
        if idle < _IDLE_PATIENCE_SECONDS and elapsed < _BUSY_PATIENCE_SECONDS:
            return False
        slow = self.finished * _SLOW_PART <= waiting
        self.restart()
        return slow


class Offload:
    """Runs sync functions in threads; calls that are started together share a thread hop.

    Quick functions run best one after the other in one thread, blocking ones in many: so one
    thread starts, and more are added while calls wait and few finish. At most ``threads`` work at
    once; a thread that waits for the store, or hangs in a function, does not count. When
    ``max_hung`` threads hang, functions in which they hang are not called again.

    Threads are daemons: a process can exit although one hangs.
    """

    def __init__(self, threads: int, max_hung: int) -> None:
        self._max_working = threads
        self._max_hung = max_hung
        self._calls: deque[Call[Any]] = deque()
        self._running: dict[int, Call[Any]] = {}
        self._working: set[int] = set()
        self._hung: dict[int, Call[Any]] = {}
        self._starting = 0
        self._idle = 0
        self._is_closed = False
        self._progress = _Progress()
        self._inboxes: dict[asyncio.AbstractEventLoop, _Inbox] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)

    @property
    def is_exhausted(self) -> bool:
        """Whether too many threads hang."""
        return len(self._hung) >= self._max_hung

    def hung(self) -> list[str]:
        """Return the name of the function in which each hung thread is."""
        return [call.declared.name for call in tuple(self._hung.values())]

    def prepare(
        self,
        declared: Named,
        seconds: float,
        context: contextvars.Context,
        function: Callable[..., T],
        *arguments: Any,
    ) -> Call[T]:
        """Return a call that has not started.

        Its result raises DeadlineError if the function takes longer than the seconds, and
        ThreadsExhaustedError if too many threads hang, some of them in this function.
        """
        return Call(self, declared, seconds, context, function, *arguments)

    async def call(self, call: Call[T]) -> T:
        """Start a call and return its result, in any coroutine."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.start(lambda _: None if future.done() else future.set_result(None))
        try:
            await future
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call.result()

    def submit(self, call: Call[Any]) -> None:
        """Queue a call of the running event loop."""
        if self._is_closed:
            raise RuntimeError("the store is closed")
        inbox = call.inbox = self._inbox(asyncio.get_running_loop())
        self._calls.append(call)
        if not inbox.is_starting:
            inbox.is_starting = True
            inbox.loop.call_soon(self._start, inbox)

    @contextmanager
    def waiting(self, call: Call[Any]) -> Iterator[None]:
        """Do not count a call's thread as working."""
        thread = threading.get_ident()
        with self._lock:
            was_working = thread in self._working
            self._working.discard(thread)
        if self._calls:
            call.inbox.loop.call_soon_threadsafe(self._start, call.inbox)
        try:
            yield
        finally:
            with self._lock:
                if was_working and thread not in self._hung:
                    self._working.add(thread)

    def close(self) -> None:
        """End the idle threads; running calls have no effect any more."""
        with self._wake:
            self._is_closed = True
            self._wake.notify_all()

    def _inbox(self, loop: asyncio.AbstractEventLoop) -> _Inbox:
        inbox = self._inboxes.get(loop)
        if inbox is None:
            with self._lock:
                alive = {k: each for k, each in self._inboxes.items() if not k.is_closed()}
                inbox = _Inbox(loop)
                self._inboxes = {**alive, loop: inbox}
        return inbox

    def _start(self, inbox: _Inbox) -> None:
        """Start a thread if calls wait and none works; from then on, check them periodically."""
        inbox.is_starting = False
        with self._lock:
            is_needed = bool(self._calls) and not (self._working or self._starting)
        if is_needed:
            self._progress.restart()
            self._add_threads(1)
        if not inbox.is_checking:
            inbox.is_checking = True
            inbox.loop.call_later(_CHECK_SECONDS, self._check, inbox)

    def _check(self, inbox: _Inbox) -> None:
        """Deliver results, abandon calls that take too long, and add threads for blocking ones."""
        inbox.deliver()
        running = [call for call in tuple(self._running.values()) if call.inbox is inbox]
        now = time.monotonic()
        for call in running:
            if now - call.started > call.seconds:
                self._abandon(call)
        if not running and not self._calls:
            inbox.is_checking = False
            return
        if self._calls:
            working = len(self._working) + self._starting
            if not working:
                self._add_threads(1)
            elif working < self._max_working and self._progress.is_slow(len(self._calls)):
                self._add_threads(min(working, self._max_working - working, len(self._calls)))
        inbox.loop.call_later(_CHECK_SECONDS, self._check, inbox)

    def _abandon(self, call: Call[Any]) -> None:
        with self._lock:
            if self._running.get(call.thread) is not call:
                return  # it has just finished
            del self._running[call.thread]
            self._working.discard(call.thread)
            self._hung[call.thread] = call
        log.error(
            "sync function hangs; thread abandoned",
            function=call.declared.name,
            seconds=call.seconds,
            hung_threads=len(self._hung),
            stack=stack_of(call.thread, __file__),
        )
        if len(self._hung) == self._max_hung:
            log.error("too many hung threads; their functions are refused", functions=self.hung())
        was_abandoned = call.is_abandoned
        call.cancel()
        if not was_abandoned:
            call.fail(DeadlineError())
            call.deliver()

    def _add_threads(self, count: int) -> None:
        with self._wake:
            created = max(0, self._starting + count - self._idle)
            self._starting += count
            self._idle += created
            self._wake.notify(count - created)
        for _ in range(created):
            threading.Thread(target=self._work, name=THREAD_NAME, daemon=True).start()

    def _work(self) -> None:
        """Run calls whenever this thread is needed, until it is idle for long."""
        while self._is_needed():
            self._drain()

    def _is_needed(self) -> bool:
        with self._wake:
            while not self._starting:
                is_notified = self._wake.wait(_IDLE_SECONDS)
                if self._is_closed or not (is_notified or self._starting):
                    self._idle -= 1
                    return False
            self._starting -= 1
            self._idle -= 1
            self._working.add(threading.get_ident())
            return True

    def _drain(self) -> None:
        """Run waiting calls until none is left."""
        thread = threading.get_ident()
        inboxes: set[_Inbox] = set()
        since = time.perf_counter()
        while (call := self._next(thread)) is not None:
            call.perform()
            call.inbox.done.append(call)
            inboxes.add(call.inbox)
            if time.perf_counter() - since > _COLLECT_SECONDS:
                for inbox in inboxes:
                    inbox.notify()
                since = time.perf_counter()
        for inbox in inboxes:
            inbox.notify()

    def _next(self, thread: int) -> Call[Any] | None:
        """Return the next call; None if none waits, or if this thread hung and was replaced."""
        with self._lock:
            self._running.pop(thread, None)
            self._progress.finished += 1
            if self._hung.pop(thread, None) is not None:
                self._idle += 1
                return None
            while self._calls:
                call = self._calls.popleft()
                if not call.is_abandoned:
                    call.thread = thread
                    call.started = time.monotonic()
                    self._running[thread] = call
                    if self.is_exhausted and call.declared.name in self.hung():
                        call.fail(ThreadsExhaustedError())
                    return call
            self._working.discard(thread)
            self._idle += 1
            return None
