"""Tasks on Ray: the promises of runners on a cluster, by its client, in a user's own driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import ray

from conformance.runners import RunnerSuite
from engines.ray_cluster import RayAddresses, ray_cluster
from headwater.ports import Runner

_OWN_DRIVER = """
import asyncio, sys
import ray
from conformance.runner_tasks import Double
from headwater.backends.runners.choice import runner_of
from headwater.settings.schema import Settings

ray.init({init})
runner = runner_of(Settings().replace(runner={chosen}).runner)

async def run():
    return sorted([number async for number, _ in runner.map(map(Double, range(5)))])

print(asyncio.run(run()), asyncio.run(runner.slots()))
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayAddresses]:
    with ray_cluster() as addresses:
        yield addresses


class TestRay(RunnerSuite):
    @pytest.fixture
    def chosen(self, cluster: RayAddresses) -> dict[str, Any]:
        return {"kind": "ray", "address": cluster.node}


class TestRayClient(RunnerSuite):
    """The client, which `runner.address` names and the runner connects, runs nothing itself."""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def disconnected(cls, cluster: RayAddresses) -> Iterator[None]:
        """Leave the cluster that other tests have joined, and this one at the end."""
        ray.shutdown()
        yield
        ray.shutdown()

    @pytest.fixture
    def chosen(self, cluster: RayAddresses) -> dict[str, Any]:
        return {"kind": "ray", "address": cluster.client}

    async def test_the_runner_is_connected_by_the_client(self, runner: Runner) -> None:
        assert await runner.slots() == 3
        assert ray.util.client.ray.is_connected()


def _driven(init: str, chosen: dict[str, Any]) -> str:
    """Return what a driver prints that begins by connecting to Ray itself."""
    program = _OWN_DRIVER.format(init=init, chosen=chosen)
    return subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()[-1]


def test_the_cluster_of_a_users_own_driver_is_used() -> None:
    assert _driven("'local', num_cpus=2", {"kind": "ray"}) == "[0, 2, 4, 6, 8] 2"


def test_a_driver_elsewhere_uses_the_client_of_ray(cluster: RayAddresses) -> None:
    chosen = {"kind": "ray", "address": cluster.client}
    assert _driven(f"{cluster.client!r}", chosen) == "[0, 2, 4, 6, 8] 3"
