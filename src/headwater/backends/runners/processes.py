"""Tasks in local processes.

The executors of the standard library and of loky were tried instead: when one process is killed,
all tasks that run or wait are lost and none is known as its task; the standard library's also runs
the user's script again in each process, and cannot end a task that hangs.
"""

from __future__ import annotations

import asyncio
import pickle
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from headwater.backends.runners.sent_task import SentTask, TaskAnswer
from headwater.backends.runners.task_process import LENGTH
from headwater.core.logging import log
from headwater.ports import Task

T = TypeVar("T")

MAX_STARTS = 3
"""How often a task is begun whose process dies."""
_PROGRAM = "from headwater.backends.runners.task_process import main; main()"


class ProcessRunner:
    """Runs tasks in local processes, one task at a time in each.

    The processes end when the iteration does, and when this process dies.
    """

    def __init__(self, processes: int) -> None:
        self._processes = processes

    async def slots(self) -> int:
        return self._processes

    async def map(self, tasks: Iterable[Task[T]]) -> AsyncGenerator[T, None]:
        """Run the tasks and yield their results as they finish.

        Raises TaskFailedError with the text of a task's error.
        """
        waiting = deque((task, 1) for task in SentTask.of(tasks))
        answers: asyncio.Queue[TaskAnswer | Exception] = asyncio.Queue()
        unfinished = len(waiting)
        slots = [
            asyncio.create_task(_work(waiting, answers))
            for _ in range(min(self._processes, unfinished))
        ]
        try:
            for _ in range(unfinished):
                answer = await answers.get()
                if isinstance(answer, Exception):
                    raise answer
                yield answer.result()
        finally:
            for slot in slots:
                slot.cancel()
            await asyncio.gather(*slots, return_exceptions=True)


async def _work(
    waiting: deque[tuple[SentTask, int]], answers: asyncio.Queue[TaskAnswer | Exception]
) -> None:
    """Run tasks in a process, and in another one if it dies, until none is left."""
    try:
        while waiting:
            async with _TaskProcess() as process:
                while waiting:
                    task, start = waiting.popleft()
                    answer = await process.run(task)
                    if answer is None:
                        status = await process.status()
                        if start == MAX_STARTS:
                            raise task.lost(status)
                        log.warning(
                            "task process ended; starting its task again", exit_status=status
                        )
                        waiting.append((task, start + 1))
                        break
                    answers.put_nowait(answer)
    except Exception as error:  # noqa: BLE001 - raised where the answers are taken
        answers.put_nowait(error)


class _TaskProcess:
    """A process that runs the tasks it is sent."""

    _process: Process

    async def __aenter__(self) -> _TaskProcess:
        # In a separate session Ctrl-C does not reach the process, which this one ends.
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, stdin=PIPE, stdout=PIPE, start_new_session=True
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        ended = asyncio.create_task(self._process.wait())
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            await ended  # takes no time: the process is killed
            raise

    async def run(self, task: SentTask) -> TaskAnswer | None:
        """Return the result of a task or its error; None if the process died."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        message = pickle.dumps(task)
        try:
            requests.write(LENGTH.pack(len(message)) + message)
            await requests.drain()
            (size,) = LENGTH.unpack(await answers.readexactly(LENGTH.size))
            answer: Any = pickle.loads(await answers.readexactly(size))
        except (ConnectionError, asyncio.IncompleteReadError):
            return None
        assert isinstance(answer, TaskAnswer)
        return answer

    async def status(self) -> str:
        """Return the exit status of the process, or the signal that ended it."""
        code = await self._process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"
