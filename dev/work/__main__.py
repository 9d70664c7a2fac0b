"""Count what each operation makes the process do, and compare it with `counts.toml`.

Calls, system calls and bytes are the same on a busy machine and on a quiet one, so they show that
an operation has become slower where times cannot. A commit that changes the file says why.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping
from pathlib import Path

from bench.keys import ServerKeys
from bench.production import new_store

DATA = Path(__file__).with_name("counts.toml")
ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = ("embedded", "servers")
UPDATE = "make work ARGS=--update"

Work = dict[str, dict[str, float]]
"""The counts of each operation."""


def measured(on_servers: Mapping[str, str] | None = None) -> Work:
    """Count in a new process, with a new embedded store or with the one of these settings."""
    with tempfile.TemporaryDirectory(prefix="headwater-work-") as folder:
        keys = ServerKeys(Path(folder))
        headers = keys.add("work", "read")
        store = on_servers or {"HEADWATER_HOME": f"{folder}/store"}
        done = subprocess.run(
            [sys.executable, "-m", "dev.work.child", json.dumps(dict(headers))],
            cwd=ROOT,
            env={**os.environ, **keys.settings, **store, "PYTHONHASHSEED": "0"},
            stdout=subprocess.PIPE,
            check=True,
        )
    work: Work = json.loads(done.stdout)
    return work


def compared(before: Work, on_servers: Mapping[str, str] | None = None) -> tuple[Work, list[str]]:
    """Count until nothing differs or three times; return the least counts and the differences.

    In some processes the answers of two servers always arrive in the other order.
    """
    now = measured(on_servers)
    for _ in range(2):
        if not differences(before, now):
            break
        again = measured(on_servers)
        now = {
            operation: {
                name: min(number, again[operation][name]) for name, number in counts.items()
            }
            for operation, counts in now.items()
        }
    return now, differences(before, now)


def kept() -> dict[str, Work]:
    """Return the counts of the file, by environment."""
    return tomllib.loads(DATA.read_text(encoding="utf-8"))


def differences(before: Work, now: Work) -> list[str]:
    """Return a sentence for each count that has changed by more than chance explains."""
    lines = []
    for operation, counts in now.items():
        for name, number in counts.items():
            former = before.get(operation, {}).get(name)
            if former is None:
                lines.append(f"{operation}: {number:,} {name} are not in {DATA.name}: {UPDATE}")
            elif number > former + tolerance(name, former):
                advice = f"take steps away, or {UPDATE} and say why in the commit's body"
                lines.append(f"{operation}: {number:,} {name} instead of {former:,}: {advice}")
            elif number < former - 3 * tolerance(name, former):
                advice = f"keep the gain: {UPDATE}"
                lines.append(f"{operation}: {number:,} {name} instead of {former:,}: {advice}")
    return lines


TOLERANCES = {
    "calls": (0.08, 1),
    "builtin_calls": (0.08, 1),
    "reads": (0.2, 2),
    "writes": (0.2, 2),
    "bytes_written": (0.1, 100),
    "peak_bytes": (0.1, 1_000),
}
"""By which part, and by how much besides, a count may differ."""


def tolerance(name: str, number: float) -> float:
    part, besides = TOLERANCES[name]
    return part * number + besides


def text_of(work: Mapping[str, Work]) -> str:
    """Return the counts as TOML."""
    tables = []
    for environment, operations in work.items():
        lines = [f"[{environment}]"]
        for operation, counts in operations.items():
            pairs = ", ".join(f"{name} = {number}" for name, number in counts.items())
            lines.append(f'"{operation}" = {{ {pairs} }}')
        tables.append("\n".join(lines) + "\n")
    return "\n".join([HEAD, *tables])


HEAD = f"# What one operation takes; written by `{UPDATE}`.\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.work", description=__doc__)
    parser.add_argument("--update", action="store_true", help="write the counts into the file")
    parser.add_argument("--only", choices=ENVIRONMENTS, help="count in this environment only")
    given = parser.parse_args()
    before, now, lines = kept(), {}, []
    for environment in ENVIRONMENTS:
        if given.only in (None, environment):
            store = new_store() if environment == "servers" else None
            now[environment], differing = compared(before.get(environment, {}), store)
            lines += [f"{environment}, {line}\n" for line in differing]
    sys.stdout.write(text_of(now))
    if given.update:
        DATA.write_text(text_of({**before, **now}), encoding="utf-8")
        return 0
    sys.stderr.writelines(lines)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
