"""Publish → visible as contestants: a publisher, a worker and a reader, each its own process."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bench.case import ContestantFailedError, Effort, Figure, Measure
from bench.pings import PER_SECOND
from bench.process import Command, child, measuring, python, serving
from bench.production import bare_redis_url, new_store
from bench.startup import HEADWATER

SLOWEST = 0.9  # the share of the pace below which a round does not count
TRIES = 3


@contextmanager
def ours(effort: Effort) -> Iterator[Measure]:
    """Our publish, `headwater worker` and our reads."""
    store = new_store()
    command: Command = [HEADWATER, "worker", "bench/features.py"]
    with (
        serving("redis-ours-worker", command, lambda: True, store),
        measuring("redis-ours-ping", child("ours", "ping", "", effort), store) as ping,
        measuring("redis-ours-watch", child("ours", "watch", "", effort), store) as watch,
    ):
        yield warm(ping, watch, effort)


@contextmanager
def floor(effort: Effort) -> Iterator[Measure]:
    """The same with plain commands: XADD, a blocking XREAD and MSET, MGET."""
    url = bare_redis_url()
    command = python("-m", "bench.redis_floors", url)
    with (
        serving("redis-floor-worker", command, lambda: True),
        measuring("redis-floor-ping", child("redis_floors", "ping", url, effort)) as ping,
        measuring("redis-floor-watch", child("redis_floors", "watch", url, effort)) as watch,
    ):
        yield warm(ping, watch, effort)


def warm(ping: Measure, watch: Measure, effort: Effort) -> Measure:
    """A measure that has both at work at the same time, after a round that does not count."""

    def measure() -> Figure:
        for _ in range(TRIES):
            with ThreadPoolExecutor(2) as pool:
                pace, seen = pool.submit(ping), pool.submit(watch)
            if pace.result().value >= PER_SECOND * SLOWEST or not effort.is_timed:
                return seen.result()
        raise ContestantFailedError(f"only {pace.result().value:.0f} events/s could be sent")

    measure()
    return measure
