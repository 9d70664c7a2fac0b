"""Running many small calls concurrently: without a task or a thread hop for each."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from headwater.core.futures import Settlement, settle
from headwater.errors import BackendError

T = TypeVar("T")
Runner = Callable[[Iterator[T]], Coroutine[Any, Any, None]]

THREAD_NAME = "headwater-sync"
_MAX_THREADS = 1_000
# A thread that is still busy after this time probably waits, so another one is added.
_PATIENCE_SECONDS = 0.002
# Results of quick calls are returned together, at the latest with the loop's next check.
_COLLECT_SECONDS = 0.0005


async def run_concurrently(items: Iterable[T], run: Runner[T], limit: int) -> None:
    """Let at most ``limit`` concurrent runners take items until none is left.

    The next runner starts when all others wait. Items that never wait are therefore all taken by
    the first runner, and need no task. An error in one runner ends all of them and is raised.
    """
    runners = _Runners(items, run, limit)
    try:
        async with runners.group:
            await runners.take(1)
    except BaseExceptionGroup as errors:
        # Backend errors are temporary, so any other error is raised first.
        permanent = errors.split(BackendError)[1] or errors
        raise permanent.exceptions[0] from None


class _Runners(Generic[T]):
    """The items that are left, and the runners that take them.

    It has no reference cycle unless a runner fails: a worker makes one for each batch, and garbage
    collection pauses the whole process.
    """

    __slots__ = ("_items", "_limit", "_loop", "_next", "_run", "group")

    def __init__(self, items: Iterable[T], run: Runner[T], limit: int) -> None:
        self._items = iter(items)
        self._run = run
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle | None = None
        self.group = asyncio.TaskGroup()

    async def take(self, number: int) -> None:
        """Run the runner of this number; when it is done, no further one is needed."""
        try:
            await self._run(self._take_items(number))
        finally:
            if self._next is not None:
                self._next.cancel()
                self._next = None

    def _take_items(self, number: int) -> Iterator[T]:
        for item in self._items:
            if number < self._limit:
                # The loop calls it when this runner waits, or never.
                self._next = self._loop.call_soon(self._start_next, number + 1)
                number = self._limit
            yield item

    def _start_next(self, number: int) -> None:
        self._next = None
        taking = self.take(number)
        try:
            self.group.create_task(taking)
        except RuntimeError:
            taking.close()  # another runner has failed, and the group is ending


class Caller(NamedTuple):
    """The event loop that waits for a sync function, and the offload that runs it."""

    loop: asyncio.AbstractEventLoop
    offload: Offload


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "headwater_caller", default=None
)
"""Set in worker threads, and in threads started from them with a copy of their context.

It is not part of a feature's frame: it says where blocking calls are run, not what they see.
"""


class _Call(NamedTuple):
    context: contextvars.Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class Offload:
    """Runs sync functions in threads; calls of one iteration of the loop share a thread hop.

    Quick functions run best one after the other in one thread, blocking ones in many: so one
    thread starts, and more are added while calls wait. At most ``threads`` work at once; a thread
    that waits for the store, or hangs in a function, does not count.
    """

    def __init__(self, threads: int) -> None:
        self._max_working = threads
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=THREAD_NAME)
        self._calls: deque[_Call] = deque()
        self._settlements: list[Settlement] = []
        self._working = 0
        self._lost: set[int] = set()
        self._checking: frozenset[asyncio.AbstractEventLoop] = frozenset()
        """The loops that will check soon whether calls wait."""
        self._lock = threading.Lock()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call the function in a thread, with this task's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        context.run(caller.set, Caller(loop, self))
        self._calls.append(_Call(context, function, arguments, future))
        if loop not in self._checking:
            self._check_within(0, loop)
        return await future

    @contextmanager
    def waiting(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Do not count this thread as working while it waits for something that may need one."""
        with self._lock:
            self._working -= 1
        loop.call_soon_threadsafe(self._dispatch, loop)
        try:
            yield
        finally:
            with self._lock:
                self._working += 1

    def lose(self, thread: int) -> None:
        """Stop counting a thread whose function hangs."""
        with self._lock:
            self._lost.add(thread)
            self._working -= 1

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Add a thread if calls wait, and check again soon while any call is running."""
        self._flush()
        with self._lock:
            self._checking -= {loop}
            if not self._calls and not self._working:
                return
            needs_thread = bool(self._calls) and self._working < self._max_working
            self._working += needs_thread
        if needs_thread:
            self._pool.submit(self._drain)
        if loop not in self._checking:
            self._check_within(_PATIENCE_SECONDS, loop)

    def _check_within(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            # A closed loop will never check.
            self._checking = frozenset(k for k in self._checking if not k.is_closed()) | {loop}
        loop.call_later(seconds, self._dispatch, loop)

    def _drain(self) -> None:
        since = time.perf_counter()
        while (call := self._next_call()) is not None:
            settlement = _perform(call)
            with self._lock:
                self._settlements.append(settlement)
            if time.perf_counter() - since > _COLLECT_SECONDS:
                self._flush()
                since = time.perf_counter()
        self._flush()

    def _next_call(self) -> _Call | None:
        """Return the next call; None if none waits or this thread is lost, which ends it."""
        thread = threading.get_ident()
        with self._lock:
            if thread in self._lost:
                self._lost.discard(thread)
                return None
            if self._calls:
                return self._calls.popleft()
            self._working -= 1
            return None

    def _flush(self) -> None:
        with self._lock:
            settlements, self._settlements = self._settlements, []
        settle(settlements)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _perform(call: _Call) -> Settlement:
    try:
        return Settlement(call.future, call.context.run(call.function, *call.arguments))
    except BaseException as error:  # noqa: BLE001 - user code may raise anything; its caller gets it
        return Settlement(call.future, error=error)
