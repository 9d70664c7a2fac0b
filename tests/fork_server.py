"""Commands as copies of a process that has loaded the package, which takes most of a start.

A copy differs from a real start in nothing but what the interpreter reads when it begins: variables
such as ``PYTHONUTF8``, limits and ignored signals. Tests of these start a real process.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any, NamedTuple

import duckdb

import headwater

ROOT = Path(__file__).parents[1]

# Packages whose libraries take long to load and few commands need, and what is not for commands.
NOT_PRELOADED = (
    *("integrations", "mcp", "telemetry", "testing", "__main__"),
    *("kafka", "lake", "on_ray", "on_spark"),
)


Stream = int | IO[str]
"""As for ``subprocess.Popen``: ``PIPE``, ``DEVNULL`` or a file."""


class Order(NamedTuple):
    """A command: its module, arguments, variables and working directory."""

    module: str
    arguments: list[str]
    variables: dict[str, str]
    folder: str


class Copy:
    """A command that runs; it is used like a ``subprocess.Popen`` whose output is text."""

    def __init__(self, link: socket.socket, stdin: int, stdout: int, stderr: int) -> None:
        self._link = link
        self._answers = link.makefile()
        self.stdin: IO[str] = os.fdopen(stdin, "w")
        self.stdout: IO[str] = os.fdopen(stdout)
        self.stderr: IO[str] = os.fdopen(stderr)
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return how the command ended, or None if it runs."""
        if self.returncode is None and select.select([self._link], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, and return the exit code or the negated signal."""
        if self.returncode is None:
            if not select.select([self._link], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._link.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end, and return the output that was not read before."""
        parts: dict[IO[str], str] = {}

        def read(stream: IO[str]) -> None:
            with stream:
                parts[stream] = stream.read()

        readers = [threading.Thread(target=read, args=(s,)) for s in (self.stdout, self.stderr)]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return parts[self.stdout], parts[self.stderr]

    def __enter__(self) -> Copy:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdin.close()
        self.stdout.close()
        self.stderr.close()
        self.wait()


class ForkServer:
    """The process that is copied."""

    def __init__(self, address: Path) -> None:
        self._address = address

    def start(self, *arguments: str, variables: dict[str, str], folder: Path) -> Copy:
        """Run `headwater` with the arguments."""
        order = Order("headwater", list(arguments), variables, str(folder))
        return self.run(order, (subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE))

    def run(self, order: Order, streams: Sequence[Stream]) -> Copy:
        """Run a module as a program, with its input, output and errors."""
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(self._address))
        ends = [_ends(stream, is_input=number == 0) for number, stream in enumerate(streams)]
        encoded = json.dumps(order).encode()
        socket.send_fds(link, [len(encoded).to_bytes(4)], [theirs for _, theirs in ends])
        link.sendall(encoded)
        for _, theirs in ends:
            os.close(theirs)
        return Copy(link, *(ours for ours, _ in ends))


def _ends(stream: Stream, *, is_input: bool) -> tuple[int, int]:
    """Return our end of a stream and the end of a command."""
    if stream == subprocess.PIPE:
        read, write = os.pipe()
        return (write, read) if is_input else (read, write)
    nothing = os.open(os.devnull, os.O_RDWR)
    return nothing, os.dup(nothing if isinstance(stream, int) else stream.fileno())


@contextmanager
def fork_server() -> Iterator[ForkServer]:
    """Run the process that is copied, for the block; it ends with this process."""
    with tempfile.TemporaryDirectory(prefix="hw-") as folder:
        address = Path(folder) / "s"
        command = [sys.executable, "-m", "tests.fork_server", str(address)]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            assert process.stdin
            assert process.stdout
            assert process.stdout.readline() == b"ready\n"
            yield ForkServer(address)
            process.stdin.close()


def _serve(listener: socket.socket) -> Order | None:
    """Start copies until the input ends; return the order in a copy, and None in the server."""
    ended, wake = socket.socketpair()
    os.set_blocking(wake.fileno(), False)
    signal.set_wakeup_fd(wake.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    links: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, ended, sys.stdin], [], [])
        if sys.stdin in ready:
            for pid in links:  # of a run that was killed
                os.kill(pid, signal.SIGKILL)
            return None
        if ended in ready:
            ended.recv(4096)
            _report(links)
        if listener in ready:
            link, _ = listener.accept()
            order, descriptors = _received(link)
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for each in (listener, ended, wake, link, *links.values()):
                    each.close()
                _become(order, descriptors)
                return order
            for descriptor in descriptors:
                os.close(descriptor)
            links[pid] = link
            link.sendall(b"%d\n" % pid)


def _report(links: dict[int, socket.socket]) -> None:
    for pid in list(links):
        if (ended := os.waitpid(pid, os.WNOHANG))[0]:
            with links.pop(pid) as link:
                link.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))


def _received(link: socket.socket) -> tuple[Order, list[int]]:
    size, descriptors, _, _ = socket.recv_fds(link, 4, 3)
    with link.makefile("rb") as given:
        fields: list[Any] = json.loads(given.read(int.from_bytes(size)))
    return Order(*fields), list(descriptors)


def _become(order: Order, descriptors: list[int]) -> None:
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order.variables)
    os.chdir(order.folder)
    sys.path[0] = order.folder
    sys.argv = [order.module, *order.arguments]


def _preload(package: str, folders: Iterable[str]) -> None:
    for module in pkgutil.iter_modules(folders):
        if module.name not in NOT_PRELOADED:
            loaded = import_module(f"{package}.{module.name}")
            if module.ispkg:
                _preload(loaded.__name__, loaded.__path__)


def _main() -> None:
    _preload("headwater", headwater.__path__)
    # It was opened when DuckDB was imported, and has a thread, which a copy would miss at its end.
    duckdb.default_connection().close()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(sys.argv[1])
        listener.listen()
        os.write(1, b"ready\n")
        order = _serve(listener)
    if order is not None:
        runpy.run_module(order.module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
