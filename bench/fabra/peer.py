"""Fabra as a contestant: its own worker over a real Redis, and its own `fabra serve`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.case import Effort, Measure
from bench.environment import Environment
from bench.process import Command, free_port, measuring, serving
from bench.production import API_KEY, redis_url
from bench.web import loaded, readable

NAME = "Fabra"
INSIDE = Path(__file__).with_name("inside")

_ENVIRONMENT = Environment("Fabra 2.3.3", Path(__file__).with_name("requirements.txt"))

# In memory, or Fabra would keep its offline store in the home directory.
SETTINGS = {"FABRA_DUCKDB_PATH": ":memory:"}


@contextmanager
def worker(effort: Effort) -> Iterator[Measure]:
    """Events per second of Fabra's worker with a trivial handler."""
    python = _ENVIRONMENT.ready() / "python"
    command: Command = [python, INSIDE / "drain.py", str(effort.peer_events)]
    settings = {**SETTINGS, "FABRA_REDIS_URL": redis_url()}
    with measuring("fabra-worker", command, settings) as measure:
        yield measure


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
