"""A test run does not depend on the signals it inherited, and leaves no process behind."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.child_processes import (
    INHERITED,
    SurvivingProcessesError,
    default_signals,
    is_running,
    no_survivors,
)
from tests.test_servers import wait_until

IGNORED_BY_A_CHILD = ["sh", "-c", "grep SigIgn /proc/$$/status"]


@pytest.fixture
def started_with_nohup_in_the_background() -> Iterator[None]:
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in INHERITED}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def ignored_by_a_child() -> set[int]:
    said = subprocess.run(IGNORED_BY_A_CHILD, capture_output=True, text=True, check=True).stdout
    mask = int(said.split()[1], 16)
    return {number for number in INHERITED if mask & 1 << (number - 1)}


@pytest.mark.usefixtures("started_with_nohup_in_the_background")
def test_children_of_tests_ignore_no_signal_that_the_run_ignores() -> None:
    assert ignored_by_a_child() == set(INHERITED)
    with default_signals():
        assert ignored_by_a_child() == set()
        os.kill(os.getpid(), signal.SIGHUP)  # the run itself goes on
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_this_run_starts_children_that_ignore_no_signal() -> None:
    assert ignored_by_a_child() == set()


@pytest.mark.parametrize("parent", [[], ["setsid", "--fork"]], ids=["child", "orphan"])
def test_a_process_that_outlives_the_run_fails_it_and_is_killed(
    parent: list[str], request: pytest.FixtureRequest
) -> None:
    with ExitStack() as run:
        run.enter_context(no_survivors(within=0.1))
        process = subprocess.Popen([*parent, "sleep", "600"])
        if parent:
            process.wait()
        else:  # its environment is empty for a moment, while it begins
            wait_until(lambda: bool(Path(f"/proc/{process.pid}/environ").read_bytes()))
        with pytest.raises(SurvivingProcessesError) as raised:
            run.close()
    process.wait()
    ((pid, test),) = re.findall(r"(\d+): .*sleep 600, started by (.+) \(call\)", str(raised.value))
    assert test == request.node.nodeid
    wait_until(lambda: not is_running(int(pid)))


def test_a_process_that_is_about_to_end_is_no_survivor() -> None:
    with no_survivors():
        process = subprocess.Popen(["sleep", "0.1"])
    assert process.wait() == 0
