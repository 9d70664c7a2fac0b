"""A training set in local processes, on Ray and on Spark: CPU seconds of all their processes.

Run ``python -m bench.runners --points 1000000 --rows 5000000`` in an environment that has Ray and
Spark, such as that of ``make check-engines``. It prints one JSON object. The start is what a
runner takes for one tiny task of each slot; local processes start for every read.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.history_scale import POINTS, Size, columns, generate
from conformance.runner_tasks import Double
from headwater.backends.duckdb.exported_history import ExportedHistory
from headwater.backends.runners.choice import runner_of
from headwater.ports import FrameQuery
from headwater.settings.groups import RunnerSettings

RUNNERS = {
    "processes": RunnerSettings(kind="processes", processes=2),
    "ray": RunnerSettings(kind="ray", processes=2),
    "spark": RunnerSettings(kind="spark", address="local[2]"),
}
_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds() -> float:
    """Return the CPU time of this process and all below it, also of those that have ended."""
    parents, ticks = {}, {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        process = int(file.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))

    def is_below(process: int) -> bool:
        return process == os.getpid() or (process in parents and is_below(parents[process]))

    return sum(ticks[process] for process in ticks if is_below(process)) / _TICKS


async def measure(kind: str, folder: Path, size: Size) -> dict[str, float | str]:
    """Read the frame by a runner in this process; return CPU seconds, and a hash of the answer."""
    runner, answer = runner_of(RUNNERS[kind]), folder / f"answer-{kind}.parquet"
    answer.unlink(missing_ok=True)
    slots = await runner.slots()
    assert len([_ async for _ in runner.map(map(Double, range(slots)))]) == slots
    started = cpu_seconds()
    query = FrameQuery(folder / POINTS, columns(size))
    await ExportedHistory(folder, runner).read_frame(query, answer)
    return {
        "start": round(started, 1),
        "cpu": round(cpu_seconds() - started, 1),
        "answer": hashlib.sha256(answer.read_bytes()).hexdigest(),
    }


def main() -> None:
    """Measure each runner in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--runner", choices=list(RUNNERS))
    options = parser.parse_args()
    size = Size(options.points, options.rows)
    if options.runner is not None:
        found = asyncio.run(measure(options.runner, options.folder, size))
        sys.stdout.write(json.dumps(found) + "\n")
        return
    with tempfile.TemporaryDirectory() as made:
        folder = options.folder or Path(made)
        generate(folder, size)
        arguments = [f"--points={size.points}", f"--rows={size.rows}", f"--folder={folder}"]
        figures = {}
        for kind in RUNNERS:
            command = [sys.executable, "-m", "bench.runners", f"--runner={kind}", *arguments]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures[kind] = json.loads(done.stdout.splitlines()[-1])
    assert len({each["answer"] for each in figures.values()}) == 1
    sys.stdout.write(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
