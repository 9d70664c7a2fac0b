"""Running many small things at once, without a task for each async or a hop for each sync one."""

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

from headwater.core.futures import Answer, send
from headwater.errors import BackendError

T = TypeVar("T")
Runner = Callable[[Iterator[T]], Coroutine[Any, Any, None]]

THREAD_NAME = "headwater-sync"
_MOST_THREADS = 1_000
# A thread that is still busy after this long is probably waiting for something, so another joins.
_PATIENCE_SECONDS = 0.002
# Answers of quick calls travel back together, at the latest with the loop's next look.
_GATHER_SECONDS = 0.0005


async def share(items: Iterable[T], run: Runner[T], limit: int) -> None:
    """Lets runners take items from one stock until it is empty, at most ``limit`` at once.

    The next runner starts when all before it have to wait. Items that never wait are therefore
    all taken by the first one, and cost no task of their own. What ends one runner ends them all,
    and is raised as it is.
    """
    sharing = _Sharing(items, run, limit)
    try:
        async with sharing.group:
            await sharing.take(1)
    except BaseExceptionGroup as errors:
        # A server that is away passes; whatever else went wrong does not.
        passing = errors.split(BackendError)[1] or errors
        raise passing.exceptions[0] from None


class _Sharing(Generic[T]):
    """A stock and those who take from it.

    Nothing in it leads back to itself when all went well: a worker makes one for each batch, and
    what the collector has to find holds everything else up.
    """

    __slots__ = ("_following", "_limit", "_loop", "_run", "_stock", "group")

    def __init__(self, items: Iterable[T], run: Runner[T], limit: int) -> None:
        self._stock = iter(items)
        self._run = run
        self._limit = limit
        self._loop = asyncio.get_running_loop()
        self._following: asyncio.Handle | None = None
        self.group = asyncio.TaskGroup()

    async def take(self, number: int) -> None:
        """Runs the runner of this number, and keeps the next one from starting when it is done."""
        try:
            await self._run(self._portion(number))
        finally:
            if self._following is not None:
                self._following.cancel()
                self._following = None

    def _portion(self, number: int) -> Iterator[T]:
        for item in self._stock:
            if number < self._limit:
                # The loop gets to it when this runner waits, or never if none does.
                self._following = self._loop.call_soon(self._follow, number + 1)
                number = self._limit
            yield item

    def _follow(self, number: int) -> None:
        self._following = None
        taking = self.take(number)
        try:
            self.group.create_task(taking)
        except RuntimeError:
            taking.close()  # another has failed in this very turn, and the group is ending


class Caller(NamedTuple):
    """Inside a sync function run here: the loop that waits for it, and who runs it."""

    loop: asyncio.AbstractEventLoop
    offload: Offload


caller: contextvars.ContextVar[Caller | None] = contextvars.ContextVar(
    "headwater_caller", default=None
)


class _Call(NamedTuple):
    context: contextvars.Context
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    future: asyncio.Future[Any]


class Offload:
    """Runs sync functions in threads; calls made in one turn of the loop share one hop.

    Quick functions are best run one after the other in one thread, waiting ones in many: so one
    thread starts, and others join while it has not come through. At most ``threads`` work at
    once; one that waits for the store, or is lost to a function that hangs, gives its place away.
    """

    def __init__(self, threads: int) -> None:
        self._most = threads
        self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix=THREAD_NAME)
        self._calls: deque[_Call] = deque()
        self._answers: list[Answer] = []
        self._working = 0
        self._lost: set[int] = set()
        self._looking: frozenset[asyncio.AbstractEventLoop] = frozenset()
        """The loops that will look soon whether calls wait; each looks for its own ones."""
        self._lock = threading.Lock()

    async def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Calls the function in a thread, with this task's context variables."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()
        context.run(caller.set, Caller(loop, self))
        self._calls.append(_Call(context, function, arguments, future))
        if loop not in self._looking:
            self._look_within(0, loop)
        return await future

    @contextmanager
    def waiting(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Gives this thread's place away while it waits for something that may need one."""
        with self._lock:
            self._working -= 1
        loop.call_soon_threadsafe(self._dispatch, loop)
        try:
            yield
        finally:
            with self._lock:
                self._working += 1

    def lose(self, thread: int) -> None:
        """Gives the place away of a thread whose function does not come back."""
        with self._lock:
            self._lost.add(thread)
            self._working -= 1

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Adds a thread if calls wait, and looks again soon while there is anything to do."""
        self._flush()
        with self._lock:
            self._looking -= {loop}
            if not self._calls and not self._working:
                return
            join = bool(self._calls) and self._working < self._most
            self._working += join
        if join:
            self._pool.submit(self._drain)
        if loop not in self._looking:
            self._look_within(_PATIENCE_SECONDS, loop)

    def _look_within(self, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            # One that was closed in the meantime will never look.
            self._looking = frozenset(k for k in self._looking if not k.is_closed()) | {loop}
        loop.call_later(seconds, self._dispatch, loop)

    def _drain(self) -> None:
        since = time.perf_counter()
        while (call := self._next_call()) is not None:
            answer = _perform(call)
            with self._lock:
                self._answers.append(answer)
            if time.perf_counter() - since > _GATHER_SECONDS:
                self._flush()
                since = time.perf_counter()
        self._flush()

    def _next_call(self) -> _Call | None:
        """The next call; without one, or without its place, this thread goes."""
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
            answers, self._answers = self._answers, []
        send(answers)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)


def _perform(call: _Call) -> Answer:
    try:
        return Answer(call.future, call.context.run(call.function, *call.arguments))
    except BaseException as error:  # noqa: BLE001 - a user's function; its caller gets what it raised
        return Answer(call.future, error=error)
