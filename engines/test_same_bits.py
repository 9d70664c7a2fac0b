"""Training sets, windows, a backfill and an evaluation: the same bits wherever tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.runner_tasks import DieUntil
from conformance.runners import Project, results, small_tasks
from engines.ray_cluster import ray_cluster
from engines.spark import SPARK_OPTIONS, spark_context
from headwater.backends.runners.choice import runner_of
from headwater.settings.schema import Settings

_SPARK = {"kind": "spark", "address": "local[2]", "options": SPARK_OPTIONS}


@pytest.fixture(autouse=True, scope="module")
def context() -> Iterator[None]:
    with spark_context():
        yield


async def test_processes_ray_and_spark_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_tasks(monkeypatch)
    project = Project(tmp_path, {})
    await project.fill()
    with ray_cluster() as cluster:
        in_processes = await project.computed({"kind": "processes", "processes": 2})
        on_ray = await project.computed({"kind": "ray", "address": cluster.node})
    assert len(in_processes) == 4
    assert on_ray == in_processes
    assert await project.computed(_SPARK) == in_processes


async def test_spark_in_one_process_runs_a_task_again_as_well(tmp_path: Path) -> None:
    runner = runner_of(Settings().replace(runner=_SPARK).runner)
    assert [number for number, _ in await results(runner, DieUntil(tmp_path, 2))] == [2]
