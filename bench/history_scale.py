"""Frames of many points over many rows of history: ours, the raw ASOF joins, and Polars.

Run ``python -m bench.history_scale --points 1000000 --rows 5000000``. Every engine runs in its own
process over the same Parquet files and reports CPU seconds, wall seconds and peak memory. It
prints one JSON object. The engine ``tasks`` reads the frame in two processes, for sizes that one
does not hold, such as ``--points 5000000 --rows 100000000 --entities 500000 --engines tasks``.

The floor is ``raw_tables``, one query with an ASOF join per feature; ``raw`` chains all joins
in one query, which needs more memory. Neither resolves ties, and ours does.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb

from headwater.backends.duckdb.exported_history import (
    ExportedHistory,
    ExportManifest,
    save_manifest,
)
from headwater.backends.runners.processes import ProcessRunner
from headwater.core.codec import Kind
from headwater.core.duckdb_session import session
from headwater.core.partitioning import bucket_of
from headwater.ports import FrameColumn, FrameQuery, Segment

DAY = 86_400_000_000
START = 1_767_225_600_000_000  # 2026-01-01
KINDS: list[Kind] = ["int", "float", "text", "bool"]
HISTORY = "history-*.parquet"
POINTS = "points.parquet"


class Size(NamedTuple):
    """The size of a frame and of its history."""

    points: int
    rows: int
    features: int = 10
    entities: int = 50_000


# One row in seven has the entity and the time of the row before it of the same feature; one in
# twenty is late by up to a day, one in fifty ahead of the clock.
_ROWS = f"""
SELECT i AS seq, 'f' || i % {{features}} AS feature, 'User' AS entity,
       i - CASE WHEN i % 7 = 0 AND i >= {{features}} THEN {{features}} ELSE 0 END AS j,
       'user-' || hash(j * 7 + 1) % {{entities}} AS entity_id,
       CASE (i % {{features}}) % 4 WHEN 0 THEN 'int' WHEN 1 THEN 'float' WHEN 2 THEN 'text'
            ELSE 'bool' END AS kind,
       {START} + CAST(hash(j * 3 + 2) % {90 * DAY} AS BIGINT) AS as_of_us,
       as_of_us + CASE WHEN i % 20 = 0 THEN CAST(hash(i) % {DAY} AS BIGINT)
                       WHEN i % 50 = 1 THEN -60000000 ELSE 1000000 END AS written_us
FROM (SELECT range * {{features}} + {{feature}} AS i FROM range({{rows}} // {{features}}))
"""
_TYPED = """
SELECT seq, feature, entity, entity_id, bucket, kind,
       make_timestamptz(as_of_us) AS as_of, make_timestamptz(written_us) AS written_at,
       'bench' AS cause,
       CASE kind WHEN 'int' THEN seq END AS value_int,
       CASE kind WHEN 'float' THEN seq / 8.0 END AS value_float,
       CASE kind WHEN 'bool' THEN seq % 3 = 0 END AS value_bool,
       CASE kind WHEN 'text' THEN 'text ' || seq % 1000 END AS value_text,
       CAST(NULL AS TIMESTAMPTZ) AS value_time, CAST(NULL AS VARCHAR) AS value_json
FROM made JOIN buckets USING (entity_id)
ORDER BY feature, bucket, entity_id, as_of, seq
"""
_POINTS = f"""
SELECT i AS "row", 'user-' || hash(i * 11 + 5) % {{entities}} AS entity_id,
       {START} + CAST(hash(i * 13 + 3) % {90 * DAY} AS BIGINT) AS "at"
FROM range({{points}}) AS t (i)
"""


def generate(folder: Path, size: Size) -> None:
    """Write an export of history and the points of a frame, the same in every run."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # all contestants start at once and need the files
        if not (folder / POINTS).exists():
            _write(folder, size)


def _write(folder: Path, size: Size) -> None:
    segments = []
    for feature in range(size.features):  # one after the other, so that each fits into memory
        name = HISTORY.replace("*", str(feature))
        rows = _ROWS.format(**size._asdict(), feature=feature)
        with duckdb.connect() as duck:
            duck.execute("SET TimeZone = 'UTC'")
            duck.create_function("bucket_of", bucket_of, ["VARCHAR"], "USMALLINT")
            duck.execute(f"CREATE TABLE made AS {rows}")
            duck.execute(
                "CREATE TABLE buckets AS SELECT entity_id, bucket_of(entity_id) AS bucket"
                " FROM (SELECT DISTINCT entity_id FROM made)"
            )
            duck.execute(f"COPY ({_TYPED}) TO '{folder / name}' (COMPRESSION zstd)")
        segments.append(Segment(name, "history", size.rows // size.features))
    manifest = ExportManifest(upto=size.rows, exported_at=datetime.now(UTC), segments=segments)
    save_manifest(folder, manifest)
    with duckdb.connect() as duck:
        # Last, because these tell that all files are there.
        duck.execute(f"COPY ({_POINTS.format(**size._asdict())}) TO '{folder / POINTS}'")


def columns(size: Size) -> list[FrameColumn]:
    return [FrameColumn(f"f{n}", KINDS[n % 4]) for n in range(size.features)]


def ours(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame with the engine of exported files, which the embedded store shares."""
    query = FrameQuery(folder / POINTS, columns(size))
    asyncio.run(ExportedHistory(folder).read_frame(query, answer))


def tasks(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame in two processes, as `runner.kind = "processes"` does."""
    query = FrameQuery(folder / POINTS, columns(size))
    asyncio.run(ExportedHistory(folder, ProcessRunner(2)).read_frame(query, answer))


def known(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame with the values that were known."""
    query = FrameQuery(folder / POINTS, columns(size), known=True)
    asyncio.run(ExportedHistory(folder).read_frame(query, answer))


def raw(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame with one ASOF join per feature in one query, which picks any tied row."""
    joins = [
        f" ASOF LEFT JOIN (SELECT entity_id, epoch_us(as_of) AS a, value_{column.kind} AS v"
        f" FROM read_parquet('{folder / HISTORY}') WHERE feature = '{column.series}') AS h{n}"
        f' ON h{n}.entity_id = points.entity_id AND h{n}.a <= points."at"'
        for n, column in enumerate(columns(size))
    ]
    values = "".join(f", h{n}.v AS v{n}, h{n}.a AS a{n}" for n in range(size.features))
    with tempfile.TemporaryDirectory(dir=answer.parent) as scratch, session(Path(scratch)) as duck:
        duck.run(f"CREATE TABLE points AS FROM read_parquet('{folder / POINTS}')")
        duck.run(
            f'COPY (SELECT "row"{values} FROM points{"".join(joins)} ORDER BY "row")'
            f" TO '{answer}' (FORMAT parquet)"
        )


def raw_tables(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame with one ASOF join per feature, each into a table."""
    with tempfile.TemporaryDirectory(dir=answer.parent) as scratch, session(Path(scratch)) as duck:
        duck.run(f"CREATE TABLE points AS FROM read_parquet('{folder / POINTS}')")
        for n, column in enumerate(columns(size)):
            duck.run(
                f'CREATE TABLE c{n} AS SELECT "row", h.v, h.a FROM points ASOF LEFT JOIN'
                f" (SELECT entity_id, epoch_us(as_of) AS a, value_{column.kind} AS v"
                f" FROM read_parquet('{folder / HISTORY}') WHERE feature = '{column.series}') AS h"
                f' ON h.entity_id = points.entity_id AND h.a <= points."at"'
            )
        values = "".join(f", c{n}.v AS v{n}, c{n}.a AS a{n}" for n in range(size.features))
        joins = "".join(f' JOIN c{n} USING ("row")' for n in range(1, size.features))
        duck.run(
            f'COPY (SELECT c0."row"{values} FROM c0{joins} ORDER BY c0."row")'
            f" TO '{answer}' (FORMAT parquet)"
        )


def polars(folder: Path, size: Size, answer: Path) -> None:
    """Answer the frame with Polars, one join_asof per feature."""
    import polars as pl  # noqa: PLC0415 - a peer

    points = pl.read_parquet(folder / POINTS).sort("at")
    history = pl.scan_parquet(folder / HISTORY)
    for n, column in enumerate(columns(size)):
        rows = (
            history.filter(pl.col("feature") == column.series)
            .select(
                "entity_id",
                pl.col("as_of").dt.epoch("us").alias(f"a{n}"),
                pl.col(f"value_{column.kind}").alias(f"v{n}"),
            )
            .collect()
            .sort(f"a{n}")
        )
        points = points.join_asof(
            rows, left_on="at", right_on=f"a{n}", by="entity_id", coalesce=False
        )
    points.drop("entity_id", "at").sort("row").write_parquet(answer)


ENGINES: dict[str, Callable[[Path, Size, Path], None]] = {
    "ours": ours,
    "tasks": tasks,
    "known": known,
    "raw": raw,
    "raw_tables": raw_tables,
    "polars": polars,
}
LAKE = "lake"
"""The engine of a lake with the same rows; its packages and its files are loaded before."""


def measure(name: str, folder: Path, size: Size) -> dict[str, float]:
    """Run an engine in this process; return its seconds and its peak memory."""
    answer = folder / f"answer-{name}.parquet"
    answer.unlink(missing_ok=True)
    run = ENGINES.get(name) or _lake(folder, size)
    wall, cpu = time.perf_counter(), _cpu_seconds()
    run(folder, size, answer)
    return {
        "cpu_seconds": round(_cpu_seconds() - cpu, 2),
        "wall_seconds": round(time.perf_counter() - wall, 2),
        "peak_mb": round(peak_memory() / 1024, 1),
        "task_peak_mb": round(_ended().ru_maxrss / 1024, 1),
    }


def _lake(folder: Path, size: Size) -> Callable[[Path, Size, Path], None]:
    from bench.lake_history import LakeHistory  # noqa: PLC0415 - large, and for one engine

    opened = LakeHistory(folder, size)
    return lambda _, __, answer: opened.answer(answer)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its processes that have ended."""
    return time.process_time() + _ended().ru_utime + _ended().ru_stime


def _ended() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_CHILDREN)


def peak_memory() -> int:
    """Return the peak memory of this process in kilobytes, without that of its parent."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def run_engine(name: str, folder: Path, size: Size) -> dict[str, float]:
    """Run an engine in its own process."""
    command = [sys.executable, "-m", "bench.history_scale", "--one", name]
    command += ["--points", str(size.points), "--rows", str(size.rows)]
    command += ["--features", str(size.features), "--entities", str(size.entities)]
    command += ["--folder", str(folder)]
    answer = subprocess.run(command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
    taken: dict[str, float] = json.loads(answer.stdout)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.history_scale", description=__doc__)
    parser.add_argument("--points", type=int, default=100_000)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--entities", type=int, default=50_000)
    parser.add_argument("--folder", type=Path, help="keep the generated files here")
    parser.add_argument("--engines", default=",".join(ENGINES), help="names, separated by commas")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    size = Size(given.points, given.rows, given.features, given.entities)
    if given.one:
        sys.stdout.write(json.dumps(measure(given.one, given.folder, size)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = (given.folder or Path(scratch)) / f"{size.points}-{size.rows}-{size.features}"
        generate(folder, size)
        found = {name: run_engine(name, folder, size) for name in given.engines.split(",")}
    sys.stdout.write(json.dumps({**size._asdict(), "engines": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
