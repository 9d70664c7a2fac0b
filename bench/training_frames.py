"""Training sets: stored columns alone, and next to derived ones."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.case import Effort
from bench.floors import Measuring, Rate
from bench.training_features import DERIVED, SCORES, STORED, store
from headwater.core.duckdb_session import session

DAYS = 100
CHANGES = 10  # of each feature and entity in that time
_HISTORY = f"""
SELECT 'u' || i % {{entities}} AS user_id, i % 1000 + 0.5 AS total_spend, i % 20 AS orders,
       'country ' || i % 50 AS country, {", ".join(f"i % 9 AS {name}" for name in SCORES)},
       TIMESTAMPTZ '2026-01-01' + INTERVAL (hash(i) % {DAYS * 86_400}) SECOND AS "timestamp"
FROM range({CHANGES} * {{entities}}) AS numbers (i)
"""
# A row for each entity and day.
_FRAME = f"""
SELECT 'u' || i // {DAYS} AS user_id,
       TIMESTAMPTZ '2026-01-01' + INTERVAL (i % {DAYS}) DAY AS "timestamp"
FROM range({DAYS} * {{entities}}) AS numbers (i)
"""


@contextmanager
def reading(where: str, effort: Effort, features: Sequence[str] = ()) -> Iterator[Rate]:
    """Seconds that a frame with the values of features takes."""
    entities, folder = effort.of(1_000, 100, 10), Path(where)
    history, frame = folder / "history.parquet", folder / "frame.parquet"
    with session(folder) as duck:
        duck.write(_HISTORY.format(entities=entities), history)
        duck.write(_FRAME.format(entities=entities), frame)
    store.sync.history.import_file(history, STORED)

    async def seconds() -> float:
        start = time.perf_counter()
        await store.get_historical_features(frame, features, output=folder / "values.parquet")
        return time.perf_counter() - start

    with asyncio.Runner() as runner:
        yield lambda: runner.run(seconds())
        runner.run(store.close())


MEASURES: dict[str, Measuring] = {
    "stored": partial(reading, features=STORED),
    "derived": partial(reading, features=STORED + DERIVED),
}
