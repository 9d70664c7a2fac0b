"""Tasks in local processes."""

from __future__ import annotations

import asyncio
import pickle
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar

import msgspec

from headwater.core.logging import log
from headwater.errors import TaskFailedError
from headwater.history.task_process import LENGTH, TaskAnswer
from headwater.ports.runner import Task

T = TypeVar("T")

_MAX_STARTS = 3
_PROGRAM = "from headwater.history.task_process import main; main()"


class ProcessRunner:
    """Runs tasks in local processes, one task at a time in each.

    A task whose process dies is started again in another, three times in all. The processes end
    when the iteration does, and when this process dies.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncIterator[T]:
        """Run the tasks and yield their results as they finish.

        Raises TaskFailedError with the text of a task's error.
        """
        run: _MapRun[T] = _MapRun(tasks)
        unfinished = len(run.waiting)
        slots = [asyncio.create_task(run.work()) for _ in range(min(self._processes, unfinished))]
        try:
            for _ in range(unfinished):
                result = await run.results.get()
                if isinstance(result, _TaskError):
                    raise result.error
                yield result
        except BaseException:
            for slot in slots:
                slot.cancel()
            raise
        finally:
            await asyncio.gather(*slots, return_exceptions=True)


class _TaskError(msgspec.Struct, frozen=True):
    error: Exception


class _Waiting(msgspec.Struct, Generic[T], frozen=True):
    """A task that no process runs, and how often one has begun to."""

    task: Task[T]
    starts: int = 0


class _MapRun(Generic[T]):
    """The tasks that are left, and the results that have not been taken."""

    def __init__(self, tasks: Iterable[Task[T]]) -> None:
        self.waiting = deque(_Waiting(task) for task in tasks)
        self.results: asyncio.Queue[T | _TaskError] = asyncio.Queue()

    async def work(self) -> None:
        """Run tasks in a process, and in another one if it dies, until none is left."""
        try:
            while self.waiting:
                async with _TaskProcess() as process:
                    await self._use(process)
        except Exception as error:  # noqa: BLE001 - raised where the results are taken
            self.results.put_nowait(_TaskError(error))

    async def _use(self, process: _TaskProcess) -> None:
        while self.waiting:
            waiting = self.waiting.popleft()
            answer = await process.run(waiting.task)
            if answer is None:
                self._repeat(waiting, await process.status())
                return
            if answer.error is not None:
                raise TaskFailedError(answer.error, answer.trace)
            self.results.put_nowait(answer.result)

    def _repeat(self, waiting: _Waiting[T], status: str) -> None:
        starts = waiting.starts + 1
        if starts == _MAX_STARTS:
            raise TaskFailedError(
                f"the process that ran {waiting.task!r} ended {starts} times, the last time with "
                f"{status}; SIGKILL often means that memory ran out: use fewer processes"
            )
        log.warning("task process ended; starting its task again", exit_status=status)
        self.waiting.append(_Waiting(waiting.task, starts))


class _TaskProcess:
    """A process that runs the tasks it is sent."""

    _process: Process
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    async def __aenter__(self) -> _TaskProcess:
        ours, theirs = socket.socketpair()
        with theirs:
            self._reader, self._writer = await asyncio.open_connection(sock=ours)
            # In a separate session Ctrl-C does not reach the process, which this one ends.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _PROGRAM,
                str(theirs.fileno()),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._send(sys.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def run(self, task: Task[Any]) -> TaskAnswer | None:
        """Return the result of a task or its error; None if the process died."""
        try:
            self._send(task)
            await self._writer.drain()
            (size,) = LENGTH.unpack(await self._reader.readexactly(LENGTH.size))
            answer = pickle.loads(await self._reader.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        assert isinstance(answer, TaskAnswer)
        return answer

    async def status(self) -> str:
        """Return the exit status of the process, or the signal that ended it."""
        code = await self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def _send(self, item: object) -> None:
        message = pickle.dumps(item)
        self._writer.write(LENGTH.pack(len(message)) + message)
