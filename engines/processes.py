"""Ports of servers that tests start."""

from __future__ import annotations

import socket
from contextlib import ExitStack, closing


def free_ports(count: int) -> list[int]:
    """Return ports that no server listens on."""
    with ExitStack() as opened:
        sockets = [opened.enter_context(closing(socket.socket())) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def is_listening(port: int) -> bool:
    """Return whether a server listens on a port."""
    with closing(socket.socket()) as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
