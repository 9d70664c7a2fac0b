"""Wake all processes on this machine that wait for events or for commits, without polling."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from headwater.errors import BackendError, ClosedError
from headwater.model.values import new_id

# The path of a Unix socket is limited; in a folder with a longer path, workers poll instead.
_LONGEST_ADDRESS = 100
_POLL_SECONDS = 0.02
# A new worker reads before it waits, so it need not be known immediately.
_LIST_SECONDS = 0.05
# Two changes of a folder within a tick of the file system's clock have the same time.
_TICK_NS = 1_000_000_000

GroupPositions = Mapping[tuple[str, int], int]
"""The last committed position by consumer group and partition."""


class Mailbox:
    """A socket in a folder, whose datagrams call a function; closed if its path is too long."""

    def __init__(self, folder: Path, name: str, on_wake: Callable[[], None]) -> None:
        self._address = folder / f"{name}.sock"
        self._on_wake = on_wake
        self._loop = asyncio.get_running_loop()
        self._socket: socket.socket | None = None
        if len(os.fsencode(self._address)) <= _LONGEST_ADDRESS:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._socket.setblocking(False)  # noqa: FBT003 - the signature of the socket module
            self._socket.bind(str(self._address))
            self._loop.add_reader(self._socket, self._receive, self._socket)

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def _receive(self, listener: socket.socket) -> None:
        with suppress(BlockingIOError):
            while listener.recv(16):
                pass
        self._on_wake()

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._address.unlink(missing_ok=True)


class Sleeper:
    """The mailbox of a worker, on which it waits for a wake-up."""

    def __init__(self, folder: Path, worker: str) -> None:
        self._awake = asyncio.Event()
        self._mailbox = Mailbox(folder, worker, self._awake.set)
        self.close = self._mailbox.close

    async def wait(self, seconds: float) -> None:
        """Wait for a wake-up since the last wait, at most so many seconds."""
        if not self._mailbox.is_open:
            await asyncio.sleep(min(seconds, _POLL_SECONDS))
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        self._awake.clear()


class PositionWaits:
    """The calls of this process that wait for commits; while there are any, it has a mailbox.

    The mailbox is there before the positions are read, and a writer looks for mailboxes after its
    commit, so none is missed.
    """

    def __init__(self, folder: Path, read: Callable[[], GroupPositions]) -> None:
        self._folder = folder
        self._read = read
        self._waiting: dict[asyncio.Future[None], Mapping[tuple[str, int], int]] = {}
        self._mailbox: Mailbox | None = None

    async def until(self, targets: Mapping[tuple[str, int], int]) -> None:
        """Return when the groups have committed these positions of partitions."""
        loop = asyncio.get_running_loop()
        if self._mailbox is None:
            self._mailbox = Mailbox(self._folder, new_id(), self._check)
        done: asyncio.Future[None] = loop.create_future()
        self._waiting[done] = targets
        try:
            self._check()
            if not self._mailbox.is_open:
                loop.call_later(_POLL_SECONDS, self._poll)
            await done
        finally:
            del self._waiting[done]
            if not self._waiting:
                self._close_mailbox()

    def _check(self) -> None:
        # A failed read is not the caller's: the next commit, or the end of its wait, reads again.
        with suppress(BackendError):
            positions = self._read()
            for done, targets in self._waiting.items():
                is_over = all(positions.get(key, 0) >= last for key, last in targets.items())
                if is_over and not done.done():
                    done.set_result(None)

    def _poll(self) -> None:
        if self._waiting:
            self._check()
            asyncio.get_running_loop().call_later(_POLL_SECONDS, self._poll)

    def _close_mailbox(self) -> None:
        if self._mailbox is not None:
            self._mailbox.close()
            self._mailbox = None

    def close(self) -> None:
        """End all waits."""
        for done in self._waiting:
            if not done.done():
                done.set_exception(ClosedError("this store is closed"))
        self._close_mailbox()


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
            self._list()
            self._list_again_at = now + _LIST_SECONDS
        self._send()

    def _list(self) -> None:
        # The folder cannot be listed while the process has too many open files.
        with suppress(OSError):
            self._addresses = [str(path) for path in self._folder.glob("*.sock")]

    def _send(self) -> None:
        for address in self._addresses:
            try:
                self._sender.sendto(b"!", address)
            except ConnectionRefusedError:
                self._on_dead(address)
            except OSError:
                pass  # it has gone, or its buffer is full, so it will wake up anyway

    def _on_dead(self, address: str) -> None:
        """Do nothing: the lock file of a worker shows its end."""

    def close(self) -> None:
        self._sender.close()


class CommitNotifier(Waker):
    """Sender of a datagram to every process that waits for commits.

    While none does, it costs one look at the time at which the folder changed.
    """

    _listed = 0

    def wake(self) -> None:
        with suppress(OSError):
            changed = os.stat(self._folder).st_mtime_ns
            if changed != self._listed:
                self._list()
                self._listed = changed if time.time_ns() - changed > _TICK_NS else 0
        if self._addresses:
            self._send()

    def _on_dead(self, address: str) -> None:
        with suppress(OSError):
            os.unlink(address)
