"""TCP keep-alive for connections that may be idle for long."""

from __future__ import annotations

import asyncio
import socket
import sys
from contextlib import suppress

# A firewall forgets an idle connection after some minutes, and a dead peer is noticed as late as
# the first probe. The default of Linux is two hours.
_IDLE_SECONDS = 60
_INTERVAL_SECONDS = 15
_PROBES = 4


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Turn on keep-alive for the TCP connection of a transport; ignore other transports."""
    connected = transport.get_extra_info("socket")
    if connected is None or connected.family not in (socket.AF_INET, socket.AF_INET6):
        return
    with suppress(OSError):  # the peer may have closed it already
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if sys.platform == "linux":
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_SECONDS)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
