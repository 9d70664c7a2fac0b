"""Runners: tasks in this process and in others, errors, and processes that die."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from headwater.backends.inline_runner import InlineRunner
from headwater.errors import DurationError, TaskFailedError
from headwater.history.runners import ProcessRunner
from headwater.ports.runner import Runner, Task
from tests.child_processes import is_running
from tests.engine.support import until
from tests.history.tasks import DieUntil, Double, Fail, Hang

_PARENT = """
import asyncio, sys
from pathlib import Path
from headwater.history.runners import ProcessRunner
from tests.history.tasks import Hang

async def run():
    async for _ in ProcessRunner(1).map([Hang(Path(sys.argv[1]))]):
        pass

asyncio.run(run())
"""


async def results(runner: Runner, *tasks: Task[tuple[int, int]]) -> list[tuple[int, int]]:
    return [result async for result in runner.map(tasks)]


async def test_tasks_run_here_or_in_other_processes() -> None:
    tasks = [Double(number) for number in range(5)]
    here = await results(InlineRunner(), *tasks)
    assert here == [(2 * number, os.getpid()) for number in range(5)]
    there = await results(ProcessRunner(2), *tasks)
    assert sorted(number for number, _ in there) == [0, 2, 4, 6, 8]
    processes = {process for _, process in there}
    assert os.getpid() not in processes
    assert len(processes) <= 2
    assert not any(map(is_running, processes))
    assert await results(ProcessRunner(2)) == []


async def test_an_error_of_a_task_is_raised_with_its_text() -> None:
    with pytest.raises(DurationError, match="3 parsecs"):
        await results(InlineRunner(), Fail("3 parsecs"))
    with pytest.raises(TaskFailedError, match=r"^'3 parsecs' is not a duration") as raised:
        await results(ProcessRunner(1), Double(1), Fail("3 parsecs"))
    assert "in run" in raised.value.trace
    with pytest.raises(TaskFailedError, match=r"^ValueError: unexpected$"):
        await results(ProcessRunner(1), Fail(""))


async def test_a_task_whose_process_dies_is_started_again_a_few_times(tmp_path: Path) -> None:
    (result,) = await results(ProcessRunner(1), DieUntil(tmp_path, 2))
    assert result[0] == 2
    with pytest.raises(TaskFailedError, match=r"DieUntil.* ended 3 times, .* SIGKILL"):
        await results(ProcessRunner(1), DieUntil(tmp_path, 99))


async def test_processes_end_with_the_iteration(tmp_path: Path) -> None:
    file = tmp_path / "process"
    running = asyncio.create_task(results(ProcessRunner(1), Hang(file)))
    await until(lambda: file.exists() and file.read_text() != "")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(int(file.read_text()))


async def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "process"
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", _PARENT, file)
    await until(lambda: file.exists() and file.read_text() != "")
    parent.kill()
    await parent.wait()
    await until(lambda: not is_running(int(file.read_text())))
