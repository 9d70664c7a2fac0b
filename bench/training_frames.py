"""Training sets: stored columns alone, and next to derived ones."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.case import Effort
from bench.floors import Measuring, Rate
from bench.training_features import DERIVED, STORED, store
from headwater.core.duckdb_session import session

ROWS = 100_000
ENTITIES = 5_000
CHANGES = 100_000  # of each stored feature, so that two rows in five have a state of their own
_MOMENT = "TIMESTAMPTZ '2026-01-01' + INTERVAL (hash({0}) % 7776000) SECOND"
_HISTORY = f"""
SELECT 'u' || hash(i) % {ENTITIES} AS user_id, {_MOMENT.format("i + 7")} AS "timestamp",
       i % 1000 + 0.5 AS total_spend, i % 20 AS orders, 'country ' || i % 50 AS country
FROM range({{changes}}) AS numbers (i)
"""
_FRAME = f"""
SELECT 'u' || hash(i + 3) % {ENTITIES} AS user_id, {_MOMENT.format("i + 5")} AS "timestamp"
FROM range({{rows}}) AS numbers (i)
"""


@contextmanager
def reading(where: str, effort: Effort, features: Sequence[str] = ()) -> Iterator[Rate]:
    """Seconds that a frame with the values of features takes."""
    part = 10 if effort.rounds <= 2 else 1
    folder = Path(where)
    history, frame = folder / "history.parquet", folder / "frame.parquet"
    with session(folder) as duck:
        duck.write(_HISTORY.format(changes=CHANGES // part), history)
        duck.write(_FRAME.format(rows=ROWS // part), frame)
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
