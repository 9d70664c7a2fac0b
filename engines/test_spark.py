"""Tasks on Spark: the promises of runners on a cluster with executors, and in a user's driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyspark
import pytest

from conformance.runners import RunnerSuite
from engines.processes import free_ports, wait_for_port
from engines.spark import SPARK_OPTIONS, spark_context

_SPARK_CLASS = Path(pyspark.__file__).with_name("bin") / "spark-class"
_DEPLOY = "org.apache.spark.deploy"
_OWN_DRIVER = """
import asyncio, sys
from pathlib import Path
from pyspark.sql import SparkSession
from conformance.runner_tasks import DieUntil, Double
from headwater.backends.runners.choice import runner_of
from headwater.settings.schema import Settings

builder = SparkSession.builder.master("local[2,3]")
session = builder.config("spark.ui.enabled", "false").getOrCreate()
runner = runner_of(Settings().replace(runner={"kind": "spark"}).runner)

async def run():
    tasks = [*map(Double, range(5)), DieUntil(Path(sys.argv[1]), 2)]
    return sorted([number async for number, _ in runner.map(tasks)])

print(asyncio.run(run()), asyncio.run(runner.slots()), session.range(3).count())
"""


@pytest.fixture(scope="module")
def context() -> Iterator[None]:
    with spark_context():
        yield


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a cluster on this machine with one worker of four cores."""
    port, worker = free_ports(2)
    address = f"spark://127.0.0.1:{port}"
    folder = tmp_path_factory.mktemp("spark")
    here = ("--host", "127.0.0.1", "--webui-port", "0")
    commands = (
        (port, "master.Master", *here, "--port", str(port)),
        (worker, "worker.Worker", address, *here, "--port", str(worker), "--cores", "4"),
    )
    with ExitStack() as processes, (folder / "log").open("w") as log:
        for listens, program, *arguments in commands:
            command = [str(_SPARK_CLASS), f"{_DEPLOY}.{program}", *arguments]
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
            processes.enter_context(process)
            processes.callback(process.terminate)
            wait_for_port(process, listens)
        yield address


class TestSparkCluster(RunnerSuite):
    @pytest.fixture
    def chosen(self, master: str, context: None) -> dict[str, Any]:
        # An application takes all cores unless it is told, and others wait for its end.
        options = {"spark.cores.max": "2", "spark.executor.memory": "512m", **SPARK_OPTIONS}
        return {"kind": "spark", "address": master, "options": options}

    def kill(self, process: int) -> None:
        """Kill the executor: the parent of the daemon that forked the process of a task."""
        executor = _parent(_parent(process))
        assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
        os.kill(executor, signal.SIGKILL)


def _parent(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_session_of_a_users_own_driver_is_used(tmp_path: Path) -> None:
    """It repeats tasks as the session says."""
    command = [sys.executable, "-c", _OWN_DRIVER, str(tmp_path)]
    # Otherwise Spark's workers take the Python of the system.
    python = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    driver = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=python)
    assert driver.stdout.splitlines()[-1] == "[0, 2, 2, 4, 6, 8] 2 3"
