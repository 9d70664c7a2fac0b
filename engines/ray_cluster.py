"""A cluster of Ray on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import ray

from engines.processes import free_ports, wait_for_port

_RAY = Path(sys.executable).with_name("ray")


class RayAddresses(NamedTuple):
    """The addresses of a cluster: for drivers on its node, and for clients."""

    node: str
    client: str


@contextmanager
def ray_cluster() -> Iterator[RayAddresses]:
    """Yield the addresses of a cluster with three slots; this process disconnects at the end."""
    port, client, *others = map(str, free_ports(5))
    named = ("dashboard-agent-listen-port", "metrics-export-port", "node-manager-port")
    # With --block, because `ray stop` would end other clusters too.
    command = [str(_RAY), "start", "--head", "--block", f"--port={port}", "--num-cpus=3"]
    command += [f"--ray-client-server-port={client}", "--include-dashboard=false"]
    command += [f"--{name}={other}" for name, other in zip(named, others, strict=True)]
    # With the handlers of gRPC, a server of a client may crash between its fork and its exec.
    environment = os.environ | {"GRPC_ENABLE_FORK_SUPPORT": "0"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as head:
        try:
            assert head.stdout is not None
            assert any("Ray runtime started" in line for line in head.stdout)
            wait_for_port(head, int(client))
            yield RayAddresses(f"127.0.0.1:{port}", f"ray://127.0.0.1:{client}")
        finally:
            ray.shutdown()
            head.terminate()
