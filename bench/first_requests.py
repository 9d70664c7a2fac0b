"""A server that has just started: how long until it is ready, its memory, its first requests."""

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.case import ContestantFailedError, Effort, Figure, Measure
from bench.keys import ServerKeys
from bench.process import Command, child, free_port, measuring, python, scratch, serving, status
from bench.startup import HEADWATER

LATER = 10
"""The request to which the first one is compared."""


class Asked(NamedTuple):
    """A request."""

    method: str
    path: str
    body: str = ""


REQUESTS = {
    "read": Asked("GET", "/v1/features/total_spend?entity_id=u0"),
    "context": Asked(
        "POST",
        "/v1/contexts/support",
        json.dumps({"params": {"user_id": "u0", "question": "Where is my parcel?"}}),
    ),
    "search": Asked("POST", "/v1/search/docs", json.dumps({"query": "Where is my parcel?"})),
}


class Server(NamedTuple):
    """A server that is ready."""

    port: int
    pid: int
    seconds: float
    """From its start until it was ready."""


class Home:
    """A store with values, whose server is started again and again."""

    def __init__(self, folder: Path, effort: Effort) -> None:
        keys = ServerKeys(folder)
        self._headers = keys.add("bench", "read", "assemble")
        home = {"HEADWATER_HOME": str(folder / "store")}
        self._settings = {**home, **keys.settings}
        with measuring("served", child("served", "seeded", folder, effort), home) as fill:
            fill()

    @contextmanager
    def served(self) -> Iterator[Server]:
        """Start the server, and wait until it is ready."""
        port = free_port()
        command: Command = [HEADWATER, "serve", "bench/served.py", "--port", str(port)]
        with _started("ours-first-requests", command, port, "/readyz", self._settings) as server:
            yield server

    def microseconds(self, server: Server, number: int) -> Figure:
        """Send each request so many times; return how long the last one of each took."""
        taken: dict[str, float] = {}
        with closing(http.client.HTTPConnection("127.0.0.1", server.port)) as connection:
            connection.connect()
            for name, asked in REQUESTS.items():
                for _ in range(number):
                    taken[name] = _timed(connection, asked, self._headers)
        return Figure(sum(taken.values()), taken)


@contextmanager
def first(effort: Effort) -> Iterator[Measure]:
    """Microseconds of the first read, context and search of a server that reports to be ready."""
    with scratch("first-requests") as folder:
        home = Home(folder, effort)

        def measure() -> Figure:
            with home.served() as server:
                return home.microseconds(server, 1)

        yield measure


@contextmanager
def later(effort: Effort) -> Iterator[Measure]:
    """The same of the tenth of each."""
    with scratch("later-requests") as folder:
        home = Home(folder, effort)
        with home.served() as server:
            yield lambda: home.microseconds(server, LATER)


@contextmanager
def ready(effort: Effort) -> Iterator[Measure]:
    """Seconds until `headwater serve` is ready, and the memory that it then has of its own."""
    with scratch("ready") as folder:
        home = Home(folder, effort)

        def measure() -> Figure:
            with home.served() as server:
                return _start_of(server)

        yield measure


@contextmanager
def bare_ready(effort: Effort) -> Iterator[Measure]:
    """The same of a bare ASGI app on the same uvicorn."""

    def measure() -> Figure:
        with ExitStack() as stack:
            port, folder = free_port(), stack.enter_context(scratch("bare-ready"))
            command = python("-m", "bench.floor_app", folder, str(port))
            path = "/?entity_id=u0"
            return _start_of(stack.enter_context(_started("floor-ready", command, port, path, {})))

    yield measure


@contextmanager
def _started(
    name: str, command: Command, port: int, path: str, settings: Mapping[str, str]
) -> Iterator[Server]:
    begun = time.perf_counter()
    with serving(name, command, lambda: status(port, path, {}) == 200, settings) as pid:
        yield Server(port, pid, time.perf_counter() - begun)


def _start_of(server: Server) -> Figure:
    return Figure(server.seconds, {"MB": _anonymous_mb(server.pid)})


def _anonymous_mb(pid: int) -> float:
    """Return the memory of a process and its children that is not backed by files."""
    process = Path("/proc") / str(pid)
    lines = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    children = (process / "task" / str(pid) / "children").read_text().split()
    own = int(lines["RssAnon"].split()[0]) / 1_024
    return own + sum(map(_anonymous_mb, map(int, children)))


def _timed(
    connection: http.client.HTTPConnection, asked: Asked, headers: Mapping[str, str]
) -> float:
    sent = {**headers, **({"Content-Type": "application/json"} if asked.body else {})}
    begun = time.perf_counter()
    connection.request(asked.method, asked.path, asked.body or None, sent)
    response = connection.getresponse()
    answer = response.read()
    taken = time.perf_counter() - begun
    if response.status != 200:
        raise ContestantFailedError(f"{asked.path} answered {response.status}: {answer!r}")
    return 1_000_000 * taken
