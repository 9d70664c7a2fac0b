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
from chaos.run import Order, run

_EVENTS_PER_SECOND = 800
_FEWEST_EVENTS = 1_000


def main() -> int:
    given = arguments()
    seconds = given.seconds or given.events / _EVENTS_PER_SECOND
    order = Order(given.seed, given.events, given.workers, seconds, given.cluster)
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--events", type=int, default=20_000, help="number of events to publish")
    parser.add_argument("--seed", type=int, default=7, help="seed of the plan")
    parser.add_argument("--workers", type=int, default=3, help="number of worker processes")
    parser.add_argument("--seconds", type=float, help="duration of publishing")
    parser.add_argument(
        "--cluster", action="store_true", help="run on a Redis Cluster, with failovers"
    )
    given = parser.parse_args()
    if given.events < _FEWEST_EVENTS:
        parser.error(
            f"--events must be at least {_FEWEST_EVENTS:,}, or there is no place for faults"
        )
    return given


if __name__ == "__main__":
    sys.exit(main())
