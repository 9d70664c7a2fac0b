"""Wake idle workers of all processes on this machine by a datagram, so that they need not poll."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from contextlib import suppress
from pathlib import Path

# The path of a Unix socket is limited; in a folder with a longer path, workers poll instead.
_LONGEST_ADDRESS = 100
_POLL_SECONDS = 0.02
# A new worker reads before it waits, so it need not be known immediately.
_LIST_SECONDS = 0.05


class Sleeper:
    """The socket of a worker, on which it waits for a wake-up."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._address = folder / f"{worker}.sock"
        self._awake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        if len(os.fsencode(self._address)) <= _LONGEST_ADDRESS:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)  # noqa: FBT003 - the signature of the socket module
            self._socket.bind(str(self._address))
            self._loop.add_reader(self._socket, self._on_wake, self._socket)

    def _on_wake(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):
            while listener.recv(16):
                pass
        self._awake.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up since the last wait, at most so many seconds."""
        if self._socket is None:
            await asyncio.sleep(min(seconds, _POLL_SECONDS))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._address.unlink(missing_ok=True)


class Waker:
    """Sender of a datagram to every worker, used by the writer thread after a commit."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sender.setblocking(False)  # noqa: FBT003 - the signature of the socket module
        self._list_again_at = 0.0
        self._addresses: list[str] = []

    def wake(self) -> None:
        now = time.monotonic()
        if now > self._list_again_at:
            # The folder cannot be listed while the process has too many open files.
            with suppress(OSError):
                self._addresses = [str(path) for path in self._folder.glob("*.sock")]
                self._list_again_at = now + _LIST_SECONDS
        for address in self._addresses:
            # The worker is dead, or its buffer is full, so it will wake up anyway.
            with suppress(OSError):
                self._sender.sendto(b"!", address)

    def close(self) -> None:
        self._sender.close()
