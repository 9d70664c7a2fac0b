"""Running sync functions in threads: many calls share a thread hop, and a hung one is abandoned."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from headwater.core import thread_calls
from headwater.core.deadlines import DeadlineError
from headwater.core.logging import log
from headwater.core.thread_calls import Inbox, ThreadCall, ThreadsExhaustedError
from headwater.core.tracebacks import stack_of

T = TypeVar("T")

ThreadState = Literal["busy", "idle", "waiting"]

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
        self._calls: deque[ThreadCall[Any]] = deque()
        self._running: dict[int, ThreadCall[Any]] = {}
        self._working: set[int] = set()
        self._hung: dict[int, ThreadCall[Any]] = {}
        self._starting = 0
        self._idle = 0
        self._is_closed = False
        self._progress = _Progress()
        self._inboxes: dict[asyncio.AbstractEventLoop, Inbox] = {}
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)

    @property
    def is_exhausted(self) -> bool:
        """Whether too many threads hang."""
        return len(self._hung) >= self._max_hung

    def hung(self) -> list[str]:
        """Return the name of the function in which each hung thread is."""
        return [call.declared.name for call in tuple(self._hung.values())]

    def count(self, state: ThreadState) -> int:
        """Return the number of threads in a state, or of calls that wait for a thread."""
        if state == "waiting":
            return len(self._calls)
        return len(self._working) if state == "busy" else self._idle

    async def call(self, call: ThreadCall[T]) -> T:
        """Start a call and return its result, in any coroutine."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        call.start(lambda _: None if future.done() else future.set_result(None))
        try:
            await future
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call.result()

    def submit(self, call: ThreadCall[Any]) -> None:
        """Queue a call of the running event loop."""
        if self._is_closed:
            raise RuntimeError("the store is closed")
        loop = asyncio.get_running_loop()
        inbox = call.inbox = self._inboxes.get(loop) or self._new_inbox(loop)
        self._calls.append(call)
        if not inbox.is_starting:
            inbox.is_starting = True
            inbox.loop.call_soon(self._start, inbox)

    @contextmanager
    def waiting(self, call: ThreadCall[Any]) -> Iterator[None]:
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

    def _new_inbox(self, loop: asyncio.AbstractEventLoop) -> Inbox:
        with self._lock:
            alive = {k: open_inbox for k, open_inbox in self._inboxes.items() if not k.is_closed()}
            inbox = Inbox(loop)
            self._inboxes = {**alive, loop: inbox}
        return inbox

    def _start(self, inbox: Inbox) -> None:
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

    def _check(self, inbox: Inbox) -> None:
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

    def _abandon(self, call: ThreadCall[Any]) -> None:
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
            stack=stack_of(call.thread, thread_calls.__file__),
        )
        if len(self._hung) == self._max_hung:
            log.error("too many hung threads; their functions are refused", functions=self.hung())
        was_abandoned = call.is_abandoned
        call.fail(DeadlineError())
        call.cancel()
        if not was_abandoned:
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
        inboxes: set[Inbox] = set()
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

    def _next(self, thread: int) -> ThreadCall[Any] | None:
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
                    if self._hung and self.is_exhausted and call.declared.name in self.hung():
                        call.fail(ThreadsExhaustedError())
                    return call
            self._working.discard(thread)
            self._idle += 1
            return None
