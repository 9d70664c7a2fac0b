"""Runners: tasks in this process and in local ones, and processes that end with their parent."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.runner_tasks import DieUntil, Double, Doubled, Fail
from conformance.runners import RunnerSuite, results
from headwater.backends.runners.choice import runner_of
from headwater.backends.runners.inline import InlineRunner
from headwater.backends.runners.processes import ProcessRunner
from headwater.errors import DurationError, MissingExtraError, TaskFailedError
from headwater.settings.schema import Settings
from tests.child_processes import is_running
from tests.engine.support import until

_PARENT = """
import asyncio, sys
from pathlib import Path
from headwater.backends.runners.processes import ProcessRunner
from conformance.runner_tasks import Hang

print("the parent prints")
async def run():
    async for _ in ProcessRunner(1).map([Hang(Path(sys.argv[1]))]):
        pass

asyncio.run(run())
"""


class TestProcesses(RunnerSuite):
    @pytest.fixture
    def chosen(self) -> dict[str, Any]:
        return {"kind": "processes", "processes": 2}


async def test_tasks_run_in_this_process_one_after_the_other() -> None:
    done: list[Doubled] = await results(InlineRunner(), *map(Double, range(5)))
    assert done == [(2 * number, os.getpid()) for number in range(5)]
    with pytest.raises(DurationError, match="3 parsecs"):
        await results(InlineRunner(), Fail("3 parsecs"))


async def test_processes_are_used_again_and_end_with_the_iteration() -> None:
    done = await results(ProcessRunner(2), *map(Double, range(9)))
    processes = {process for _, process in done}
    assert len(processes) <= 2
    assert not any(map(is_running, processes))


async def test_the_error_of_a_task_whose_processes_died_names_the_signal(tmp_path: Path) -> None:
    with pytest.raises(TaskFailedError, match=r"DieUntil.* with SIGKILL; .* memory"):
        await results(ProcessRunner(1), DieUntil(tmp_path, 99))


async def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "process"
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", _PARENT, file)
    await until(file.exists)
    parent.kill()
    await parent.wait()
    await until(lambda: not is_running(int(file.read_text())))


async def test_a_cluster_without_its_extra_says_which_to_install() -> None:
    runner = runner_of(Settings().replace(runner={"kind": "ray"}).runner)
    with pytest.raises(MissingExtraError, match=r"runner.kind = 'ray'.*headwater\[ray\]"):
        await runner.slots()
