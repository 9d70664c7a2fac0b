"""Measures of frames for the table: CPU seconds, with the peak memory as a detail."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from bench.case import Effort, Figure, Measure
from bench.history_scale import LAKE, Size, generate, run_engine
from bench.history_scale import measure as run_here
from bench.process import WORK

SIZES = {
    "100k x 1M": Size(100_000, 1_000_000),
    "1M x 1M": Size(1_000_000, 1_000_000),
    "1M x 5M": Size(1_000_000, 5_000_000),
}
ENGINES = ("ours", "raw_tables", "polars", LAKE)


def files(size: Size, effort: Effort) -> tuple[Path, Size]:
    """Return the folder with a frame and its history, and their size, smaller if it is quick.

    The files are large and the same for all engines and runs.
    """
    share = effort.of(1, 10, 1_000)
    size = Size(size.points // share, size.rows // share)
    folder = WORK / "history" / "-".join(map(str, size))
    generate(folder, size)
    return folder, size


@contextmanager
def _measuring(engine: str, size: Size, _: str, effort: Effort) -> Iterator[Measure]:
    """Measure one engine in a process for each round, because memory is not returned."""
    folder, size = files(size, effort)
    run = run_engine if effort.is_timed else run_here

    def measure() -> Figure:
        taken = run(engine, folder, size)
        return Figure(taken["cpu_seconds"], {"peak_mb": taken["peak_mb"]})

    yield measure


MEASURES: dict[str, Callable[[str, Effort], AbstractContextManager[Measure]]] = {
    f"{engine} {name}": partial(_measuring, engine, size)
    for engine in ENGINES
    for name, size in SIZES.items()
}
