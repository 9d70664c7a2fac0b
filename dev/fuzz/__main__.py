"""`python -m dev.fuzz --cases 5000 --seed 7`: fuzz the HTTP API and print what is wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from dev.fuzz.run import fuzz
from dev.fuzz.shop import served


def main() -> int:
    """Run until at least as many cases as asked for were sent; return 1 if one is wrong."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--cases", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--examples", type=int, default=40)
    given = parser.parse_args()
    sent, seed = 0, given.seed
    violations: list[str] = []
    while sent < given.cases and not violations:
        with tempfile.TemporaryDirectory() as home, served(Path(home)) as url:
            report = fuzz(url, seed=seed, examples=given.examples)
        print(f"seed {seed}: {report}")  # noqa: T201 - the output of a command
        sent, seed = sent + report.cases, seed + 1
        violations = report.violations
    for violation in violations:
        print(f"\n{violation}")  # noqa: T201 - the output of a command
    print(f"{sent} cases, {len(violations)} violations")  # noqa: T201 - the output of a command
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
