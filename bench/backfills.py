"""Backfills: stored events replayed through a handler, in one process and in two."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench import features
from bench.case import Effort
from bench.floors import ENTITIES, Measuring, Rate
from headwater.backends.runners.processes import ProcessRunner
from headwater.core.duckdb_session import session
from headwater.core.partitioning import BUCKETS, bucket_of
from headwater.core.sql_literals import text
from headwater.history.backfill.replay import replay
from headwater.history.backfill.task import ReplayJob
from headwater.model.values import new_id
from headwater.store.task_store import FeaturesFile

FILES = 8
START = 1_700_000_000_000_000


@contextmanager
def backfill(where: str, effort: Effort, processes: int = 1) -> Iterator[Rate]:
    """Events per second through the worker's read-modify-write handler, results durable."""
    folder = Path(where)
    # In a round that counts, enough that the start of the processes is a small part.
    events = effort.of(300_000, 300_000, 1_000)
    files = [_write(folder, number, events) for number in range(FILES)]
    source = FeaturesFile(str(features.__file__))

    def rate() -> float:
        job = ReplayJob(
            source=source,
            feature="total_spend",
            series="total_spend@2",
            folder=folder / new_id(),
            files=files,
        )
        start = time.perf_counter()
        report = asyncio.run(replay(job, ProcessRunner(processes)))
        taken = time.perf_counter() - start
        assert report.values == events
        return events / taken

    yield rate


def _write(folder: Path, number: int, events: int) -> Path:
    """Write the events of some buckets as an export does."""
    first, last = number * BUCKETS // FILES, (number + 1) * BUCKETS // FILES - 1
    file = folder / f"events-{first:04}-{last:04}.parquet"
    ids = [{"id": n, "bucket": bucket_of(f"u{n}")} for n in range(ENTITIES)]
    with session(folder) as duck:
        duck.load_rows("ids", ids, {"id": "BIGINT", "bucket": "USMALLINT"})
        duck.run(
            "COPY (SELECT bucket, n, CAST(n AS VARCHAR) AS position,"
            " CAST(uuid() AS VARCHAR) AS event_id,"
            " 'purchase' AS event_type, 'u' || id AS entity_id,"
            f' {START} + n * 1000 AS "timestamp", {START} + n * 1000 AS received_at,'
            " '{\"amount\":1.5}' AS payload"
            f" FROM range({events}) AS numbers (n) JOIN ids ON id = n % {ENTITIES}"
            f" WHERE bucket BETWEEN {first} AND {last} ORDER BY bucket, n)"
            f" TO {text(file)} (FORMAT parquet)"
        )
    return file


MEASURES: dict[str, Measuring] = {
    "one_process": backfill,
    "two_processes": partial(backfill, processes=2),
}
