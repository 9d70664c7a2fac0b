"""Tasks on Ray: the promises of runners on a cluster, by its client, in a user's own driver."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from conformance.runners import RunnerSuite
from engines.processes import free_ports, wait_for_port

_RAY = Path(sys.executable).with_name("ray")
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
def cluster() -> Iterator[tuple[str, str]]:
    """Yield the addresses of a cluster on this machine: for drivers on it, and for clients."""
    port, client, *others = map(str, free_ports(6))
    named = ("dashboard-agent-listen-port", "metrics-export-port", "node-manager-port")
    # The processes outlive this command, and `ray stop` would end those of other clusters.
    command = [str(_RAY), "start", "--head", "--block", f"--port={port}", "--num-cpus=3"]
    command += [f"--ray-client-server-port={client}", "--include-dashboard=false"]
    command += [f"--{name}={other}" for name, other in zip(named, others, strict=False)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as head:
        try:
            assert head.stdout is not None
            assert any("Ray runtime started" in line for line in head.stdout)
            wait_for_port(head, int(client))
            yield f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}"
        finally:
            ray.shutdown()
            head.terminate()


class TestRay(RunnerSuite):
    @pytest.fixture
    def chosen(self, cluster: tuple[str, str]) -> dict[str, Any]:
        return {"kind": "ray", "address": cluster[0]}


def _driven(init: str, chosen: dict[str, Any]) -> str:
    """Return what a driver prints that begins by connecting to Ray itself."""
    program = _OWN_DRIVER.format(init=init, chosen=chosen)
    return subprocess.run(
        [sys.executable, "-c", program], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()[-1]


def test_the_cluster_of_a_users_own_driver_is_used() -> None:
    assert _driven("'local', num_cpus=2", {"kind": "ray"}) == "[0, 2, 4, 6, 8] 2"


def test_a_driver_elsewhere_uses_the_client_of_ray(cluster: tuple[str, str]) -> None:
    program = {"kind": "ray", "address": cluster[1]}
    assert _driven(f"{cluster[1]!r}", program) == "[0, 2, 4, 6, 8] 3"
