"""HTTP reads and ingest as contestants: a server under the load generator."""

import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from bench.case import Contestant, ContestantFailedError, Effort, Figure, Measure, last_line
from bench.keys import ServerKeys
from bench.load import IDS
from bench.process import Command, finished, free_port, python, scratch, serving, status
from bench.production import bare_redis_url, new_store
from bench.startup import HEADWATER

CONNECTIONS = 32
PATH = "/v1/features/total_spend?entity_id=u{n}"
INGEST = "/ingest/purchase"
READ_MANY = "/v1/features"
MANY = json.dumps({"features": ["total_spend"], "entity_ids": [f"u{n}" for n in range(100)]})
ASSEMBLE = "/v1/contexts/support"
QUESTION = '{"params": {"user_id": "u{n}", "question": "Where is my parcel?"}}'
EVENT = '{"entity_id": "u{n}", "payload": {"amount": 1.5}}'

# Above this share of one core the load generator, not the server, sets the rate.
CLIENT_BOUND = 0.9


def loaded(
    port: int, headers: Mapping[str, str], effort: Effort, path: str = PATH, body: str = ""
) -> Measure:
    """A measure that puts the server under load for one round."""
    command = python("-m", "bench.load", str(port), path, "--body", body)
    command += ["--connections", str(CONNECTIONS), "--seconds", str(effort.seconds)]
    for name, value in headers.items():
        command += ["--header", f"{name}: {value}"]

    def measure() -> Figure:
        done = finished(command)
        if done.returncode:
            raise ContestantFailedError(f"the load generator failed: {last_line(done.stderr)}")
        result: dict[str, float] = json.loads(done.stdout)
        if result["errors"]:
            raise ContestantFailedError(f"{result['errors']:.0f} requests failed under load")
        if result["client_cpu"] > CLIENT_BOUND and effort.is_timed:
            raise ContestantFailedError("the load generator, not the server, set the rate")
        return Figure(result["rate"], result)

    return measure


def readable(port: int, headers: Mapping[str, str]) -> bool:
    """Whether the first and the last of the values that will be asked for are there."""
    return all(status(port, PATH.format(n=n), headers) == 200 for n in (0, IDS - 1))


def floor_in(processes: int, path: str = PATH, body: str = "") -> Contestant:
    """A bare ASGI app on the same uvicorn: the same read, and nothing else."""

    @contextmanager
    def serving_requests(effort: Effort) -> Iterator[Measure]:
        port, name = free_port(), f"floor-http-{processes}"
        with scratch(name) as home:
            command = python("-m", "bench.floor_app", home, str(port), str(processes))
            with serving(name, command, lambda: readable(port, {})):
                yield loaded(port, {}, effort, path, body)

    return serving_requests


@contextmanager
def ours(effort: Effort) -> Iterator[Measure]:
    """`headwater serve` as anyone runs it: a named key with scopes, metrics and access log on."""
    with _seeded("ours-http", []) as (port, headers):
        yield loaded(port, headers, effort)


def in_processes(number: int, path: str, body: str) -> Contestant:
    """So many API processes, and requests that cost the server more than the load generator."""

    @contextmanager
    def serving_requests(effort: Effort) -> Iterator[Measure]:
        options = ["--processes", str(number), "--workers", "1"]
        with _seeded(f"ours-http-{number}", options) as (port, headers):
            yield loaded(port, headers, effort, path, body)

    return serving_requests


def gain(of: Contestant, over: Contestant) -> Contestant:
    """How many times the rate of another contestant one has, both measured in each round."""

    @contextmanager
    def serving_both(effort: Effort) -> Iterator[Measure]:
        with over(effort) as less, of(effort) as more:

            def measure() -> Figure:
                base = less().value
                return Figure(more().value / base)

            yield measure

    return serving_both


def two_processes(path: str, body: str) -> Contestant:
    """How many times the requests of one API process two answer."""
    return gain(in_processes(2, path, body), in_processes(1, path, body))


# What the machine allows: the load generator and all others need its cores too.
TWO_BARE_PROCESSES = gain(floor_in(2, READ_MANY, MANY), floor_in(1, READ_MANY, MANY))


@contextmanager
def _seeded(name: str, options: Sequence[str]) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Serve with a value for each entity; return the port and the headers of requests."""
    port = free_port()
    headers: Mapping[str, str] = {}
    command: Command = [HEADWATER, "serve", "bench.contexts", "--port", str(port), *options]
    seeded = False

    def ready() -> bool:
        nonlocal seeded
        if not seeded and status(port, "/readyz", {}) == 200:
            ingest(port, headers)
            seeded = True
        return seeded and readable(port, headers)

    with scratch(name) as home:
        keys = ServerKeys(home)
        headers = keys.add("bench", "ingest", "read", "assemble")
        settings = {"HEADWATER_HOME": str(home / "store"), **keys.settings}
        with serving(name, command, ready, settings):
            yield port, headers


@contextmanager
def ingest_floor(effort: Effort) -> Iterator[Measure]:
    """A bare ASGI app on the same uvicorn: one XADD, and nothing else."""
    port = free_port()
    command = python("-m", "bench.ingest_floor_app", bare_redis_url(), str(port))
    with serving("redis-floor-ingest", command, lambda: listens(port)):
        yield loaded(port, {}, effort, INGEST, EVENT)


@contextmanager
def ingest_ours(effort: Effort) -> Iterator[Measure]:
    """`headwater serve` as anyone runs it whose workers are elsewhere."""
    port = free_port()
    features: Command = ["bench/features.py", "--workers", "0"]
    command: Command = [HEADWATER, "serve", *features, "--port", str(port)]
    with scratch("redis-ours-ingest") as folder:
        keys = ServerKeys(folder)
        headers = keys.add("bench", "ingest")
        settings = {**new_store(), **keys.settings}
        with serving("redis-ours-ingest", command, lambda: listens(port), settings):
            yield loaded(port, headers, effort, INGEST, EVENT)


def listens(port: int) -> bool:
    """Return whether the server answers, with any status."""
    return status(port, "/healthz", {}) is not None


def ingest(port: int, headers: Mapping[str, str]) -> None:
    """Publish one purchase for each value that will be read."""
    events = [
        {"event_type": "purchase", "entity_id": f"u{number}", "payload": {"amount": 1.5}}
        for number in range(IDS)
    ]
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
        sent = {**headers, "Content-Type": "application/json"}
        connection.request("POST", "/ingest", json.dumps(events), sent)
        response = connection.getresponse()
        if response.status != 202:
            raise ContestantFailedError(f"ingest answered {response.status}: {response.read()!r}")
