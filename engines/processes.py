"""Ports of servers that tests start."""

from __future__ import annotations

import socket
import subprocess
import time
from contextlib import ExitStack, closing
from typing import Any


def free_ports(count: int) -> list[int]:
    """Return ports that no server listens on."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def wait_for_port(process: subprocess.Popen[Any], port: int) -> None:
    """Wait until a server listens on a port; raise an error if its process ends before that."""
    while True:
        with closing(socket.socket()) as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert process.poll() is None, process.args
        time.sleep(0.05)
