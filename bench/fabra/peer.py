"""Fabra as a contestant: its worker over a real Redis, its `fabra serve`, and its contexts."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.case import Contestant, ContestantFailedError, Effort, Figure, Measure
from bench.environment import Environment
from bench.process import ROOT, Command, free_port, measuring, scratch, serving
from bench.production import API_KEY, durable_postgres_url, redis_url
from bench.web import loaded, readable

NAME = "Fabra"
INSIDE = Path(__file__).with_name("inside")

_ENVIRONMENT = Environment("Fabra 2.3.3", Path(__file__).with_name("requirements.txt"))

# In memory, or Fabra would keep its offline store in the home directory.
SETTINGS = {"FABRA_DUCKDB_PATH": ":memory:"}

ATTEMPTS = 3


@contextmanager
def worker(effort: Effort) -> Iterator[Measure]:
    """Events per second of Fabra's worker with a trivial handler."""
    python = _ENVIRONMENT.ready() / "python"
    command: Command = [python, INSIDE / "drain.py", str(effort.peer_events)]
    settings = {**SETTINGS, "FABRA_REDIS_URL": redis_url()}
    # A process for each round: its clients keep connections of event loops that have ended.
    yield lambda: _measured_once("fabra-worker", command, settings)


def _measured_once(name: str, command: Command, settings: Mapping[str, str]) -> Figure:
    """Return the figure of a new process; start another one if its connection breaks."""
    for _ in range(ATTEMPTS - 1):
        with suppress(ContestantFailedError), measuring(name, command, settings) as measure:
            return measure()
    with measuring(name, command, settings) as measure:
        return measure()


def contexts(clients: int, *, on_servers: bool = False) -> Contestant:
    """Contexts per second that so many clients of one process assemble, each recorded."""

    @contextmanager
    def contestant(effort: Effort) -> Iterator[Measure]:
        python = _ENVIRONMENT.ready() / "python"
        command: Command = [python, INSIDE / "contexts.py", str(clients), str(effort.seconds)]
        with scratch("fabra-contexts") as folder:
            settings = {"FABRA_DUCKDB_PATH": str(folder / "fabra.duckdb"), "PYTHONPATH": str(ROOT)}
            if on_servers:
                settings |= {
                    "FABRA_ENV": "production",
                    "FABRA_REDIS_URL": redis_url(),
                    "FABRA_POSTGRES_URL": durable_postgres_url(effort),
                }
            with measuring(f"fabra-contexts-{clients}", command, settings) as measure:
                yield measure

    return contestant


@contextmanager
def http_read(effort: Effort) -> Iterator[Measure]:
    """Requests per second of `fabra serve` over its memory, which is its fastest store."""
    fabra = _ENVIRONMENT.ready() / "fabra"
    port = free_port()
    headers = {"X-API-Key": API_KEY}
    command: Command = [fabra, "serve", INSIDE / "seeded.py", "--port", str(port)]
    settings = {**SETTINGS, "FABRA_API_KEY": API_KEY, "PYTHONPATH": str(INSIDE)}
    with serving("fabra-http", command, lambda: readable(port, headers), settings):
        yield loaded(port, headers, effort)
