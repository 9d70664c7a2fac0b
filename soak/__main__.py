"""`python -m soak`: load a server for a long time and judge its errors, latency and memory."""

from __future__ import annotations

import argparse
import asyncio
import sys

import uvloop
from rich.console import Console

from bench.case import ContestantFailedError
from soak import report
from soak.run import Order, run
from soak.verdict import checks

WIDTH = 120  # where the output is not a terminal


def main() -> int:
    given = arguments()
    order = Order(given.seconds, given.share, given.servers)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(run(order))
    except ContestantFailedError as failed:
        sys.stderr.write(f"the server did not start: {failed}\n")
        return 2
    report.write(Console(width=None if sys.stdout.isatty() else WIDTH), found)
    return int(not all(check.is_kept for check in checks(found)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="duration of the load")
    parser.add_argument("--share", type=float, default=0.7, help="of the capacity, such as 0.7")
    parser.add_argument(
        "--servers", action="store_true", help="run on Redis and Postgres instead of embedded"
    )
    given = parser.parse_args()
    if not given.seconds > 0 or not given.share > 0:
        parser.error("--seconds and --share must be greater than 0")
    return given


if __name__ == "__main__":
    sys.exit(main())
