"""`python -m chaos`: inject faults into the production engine and count lost events."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from chaos import report
from chaos.backfill import BackfillChaos, BackfillOrder
from chaos.run import Order, run
from headwater.settings.schema import Settings

_EVENTS_PER_SECOND = 800
_FEWEST_EVENTS = 1_000


def main() -> int:
    given = arguments()
    if given.backfill:
        return backfill(given.seed, given.backfill)
    seconds = given.seconds or given.events / _EVENTS_PER_SECOND
    sizes = (given.seed, given.events, given.workers, seconds)
    layout = (given.cluster, given.bus == "kafka", given.sentinel)
    order = Order(*sizes, *layout, given.density, given.declared_keys)
    folder = Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
    passed = False
    try:
        found = asyncio.run(run(order, folder))
        report.write(Console(), found)
        passed = not report.violations(found)
    finally:
        if passed:
            shutil.rmtree(folder)
        else:
            sys.stderr.write(f"failed with --seed {order.seed}; the logs are in {folder}\n")
    return 0 if passed else 1


def backfill(seed: int, kills: int) -> int:
    """Kill a backfill and the workers of an embedded store; return the exit code."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-chaos-"))
    settings = Settings().replace(home=folder / "home", worker={"lease_ttl": 2.0})
    found = asyncio.run(BackfillChaos(BackfillOrder(seed, kills), settings, folder).run())
    counts = ", ".join(f"{name}: {count}" for name, count in sorted(found.kills.items()))
    sys.stdout.write(f"{found.events} events; killed {counts}\n")
    for difference in found.differences:
        sys.stdout.write(f"{difference}\n")
    if found.differences:
        sys.stderr.write(f"failed with --seed {seed}; the logs are in {folder}\n")
        return 1
    shutil.rmtree(folder)
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="number of events to publish")
    parser.add_argument("--seed", type=int, default=7, help="seed of the plan")
    parser.add_argument("--workers", type=int, default=3, help="number of worker processes")
    parser.add_argument("--seconds", type=float, help="duration of publishing")
    parser.add_argument(
        "--density", type=float, default=1.0, help="number of faults, as a multiple of the usual"
    )
    layout = parser.add_mutually_exclusive_group()
    layout.add_argument(
        "--cluster", action="store_true", help="run on a Redis Cluster, with failovers"
    )
    layout.add_argument(
        "--sentinel", action="store_true", help="run behind three Sentinels, with failovers"
    )
    parser.add_argument("--declared-keys", action="store_true", help="run with redis.declared_keys")
    parser.add_argument(
        "--bus",
        choices=["redis", "kafka"],
        default="redis",
        help="keep the events in Redis, or in a topic of three brokers of Kafka that fail too",
    )
    parser.add_argument(
        "--backfill",
        type=int,
        metavar="KILLS",
        help="run a backfill on the embedded store instead, and kill it so often",
    )
    given = parser.parse_args()
    if given.events < _FEWEST_EVENTS:
        parser.error(
            f"--events must be at least {_FEWEST_EVENTS:,}, or there is no place for faults"
        )
    return given


if __name__ == "__main__":
    sys.exit(main())
