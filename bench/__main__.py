"""`python -m bench`: runs the cases and prints one table."""

import argparse
import sys
from pathlib import Path

from rich.console import Console

from bench import report, rounds
from bench.case import FULL, QUICK
from bench.cases import CASES
from bench.process import WORK

RESULTS = WORK / "results.json"
WIDTH = 150  # where the output is not a terminal


def main() -> int:
    given = arguments()
    chosen = [case for case in CASES if not given.only or given.only.lower() in case.name.lower()]
    if not chosen:
        sys.stderr.write(f"no case is named {given.only!r}; there are:\n")
        sys.stderr.writelines(f"  {case.name}\n" for case in CASES)
        return 2
    console = Console(width=None if sys.stdout.isatty() else WIDTH)
    if given.compare:
        before, after = (report.decoded(file.read_bytes()) for file in (given.compare, RESULTS))
        names = {case.name for case in chosen}
        after = [each for each in after if each.case in names]
        console.print(report.comparison(before, after))
        return int(given.strict and report.has_slower(before, after))
    effort = QUICK if given.quick else FULL
    outcomes = [rounds.run(case, effort, with_peer=not given.no_peer) for case in chosen]
    results = report.encoded(outcomes)
    WORK.mkdir(exist_ok=True)
    RESULTS.write_bytes(results)
    if given.json:
        sys.stdout.write(results.decode())
    else:
        report.write(console, outcomes)
    return int(given.strict and not all(outcome.met for outcome in outcomes))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, rough figures")
    parser.add_argument("--only", metavar="NAME", help="only the cases with NAME in their name")
    parser.add_argument(
        "--no-peer", action="store_true", help="leave Fabra, Feast and LangChain out"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument(
        "--compare",
        metavar="FILE",
        type=Path,
        help="measure nothing: print the last results beside those of FILE, a copy of results.json",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit 1 when a target is missed, or a row is slower"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
