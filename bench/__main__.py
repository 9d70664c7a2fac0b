"""`python -m bench`: runs the cases and prints one table."""

import argparse
import json
import sys

from rich.console import Console

from bench import report, rounds
from bench.case import FULL, QUICK
from bench.cases import CASES
from bench.process import WORK

WIDTH = 150  # where the output is not a terminal


def main() -> int:
    given = arguments()
    chosen = [case for case in CASES if not given.only or given.only.lower() in case.name.lower()]
    if not chosen:
        sys.stderr.write(f"no case is named {given.only!r}; there are:\n")
        sys.stderr.writelines(f"  {case.name}\n" for case in CASES)
        return 2
    effort = QUICK if given.quick else FULL
    outcomes = [rounds.run(case, effort, with_peer=not given.no_peer) for case in chosen]
    results = json.dumps([report.plain(outcome) for outcome in outcomes], indent=2)
    WORK.mkdir(exist_ok=True)
    (WORK / "results.json").write_text(results + "\n")
    if given.json:
        sys.stdout.write(results + "\n")
    else:
        report.write(Console(width=None if sys.stdout.isatty() else WIDTH), outcomes)
    return int(given.strict and not all(outcome.met for outcome in outcomes))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short rounds, rough figures")
    parser.add_argument("--only", metavar="NAME", help="only the cases with NAME in their name")
    parser.add_argument(
        "--no-peer", action="store_true", help="leave Fabra, Feast and LangChain out"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
