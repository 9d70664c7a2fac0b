"""Check the size of each package against its budget (`python -m dev.size`, part of `make lint`)."""

import argparse
import sys
import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "headwater"
DATA = Path(__file__).with_name("size.toml")


def sizes(source: Path) -> Counter[str]:
    """Return the lines of Python in each package; `root` is the modules beside the packages."""
    lines: Counter[str] = Counter()
    for file in source.rglob("*.py"):
        package, *below = file.relative_to(source).parts
        lines[package if below else "root"] += file.read_bytes().count(b"\n")
    return lines


def violations(lines: Counter[str], budgets: dict[str, int]) -> list[str]:
    """Return a sentence for each package that is larger than its budget, or that has none."""
    return [
        f"{package} has {size:,} lines and a budget of {budgets[package]:,}: take away "
        f"{size - budgets[package]:,}, or raise the budget and say why in the commit's body"
        if package in budgets
        else f"{package} has {size:,} lines and no budget"
        for package, size in sorted(lines.items())
        if size > budgets.get(package, 0)
    ]


def table(lines: Counter[str], budgets: dict[str, int], goals: dict[str, int]) -> str:
    """Return size, budget and goal of every package, and their sums."""
    rows = [
        (package, lines[package], budgets[package], goals[package]) for package in sorted(budgets)
    ]
    rows.append(("sum", lines.total(), sum(budgets.values()), sum(goals.values())))
    head = f"{'package':<14}{'lines':>8}{'budget':>8}{'goal':>8}"
    return "\n".join(
        [head, *(f"{name:<14}{size:>8,}{most:>8,}{goal:>8,}" for name, size, most, goal in rows)]
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.size", description=__doc__)
    parser.add_argument("--table", action="store_true", help="print size, budget and goal")
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    lines = sizes(SOURCE)
    if parser.parse_args().table:
        sys.stdout.write(table(lines, data["budget"], data["goal"]) + "\n")
    exceeded = violations(lines, data["budget"])
    sys.stderr.writelines(f"{violation}\n" for violation in exceeded)
    return 1 if exceeded else 0


if __name__ == "__main__":
    sys.exit(main())
