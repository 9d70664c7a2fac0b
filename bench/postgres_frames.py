"""Point-in-time reads on Postgres: ours, and the same statement by hand over asyncpg."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import asyncpg
import duckdb

from bench.case import Effort
from bench.floors import Measuring, Rate
from bench.ours import one_loop
from headwater import FeatureStore, ServiceEvent, entity, feature

NAMES = [f"f{number}" for number in range(10)]
VALUES = 10  # of each feature of an entity: with 10,000 of these a million rows of history
NOW = datetime.now(UTC)

store = FeatureStore()


@entity(store)
class User:
    user_id: str


async def told(user_id: str, event: ServiceEvent) -> float:
    return float(event.payload["value"])


for _name in NAMES:
    feature(entity=User, trigger="told", name=_name)(told)

_FILL = f"""
SELECT setseed(0.5);
INSERT INTO _history (feature, entity, entity_id, kind, value, as_of, written_at, cause)
SELECT 'f' || f, 'User', 'u' || e, 'float', to_json(random() * 1000), t, t + interval '1 s', 'fill'
FROM (
    SELECT f, e, timestamptz '{NOW.isoformat()}' - random() * interval '60 days' AS t
    FROM generate_series(0, {len(NAMES) - 1}) AS f, generate_series(1, {{entities}}) AS e,
         generate_series(1, {VALUES})
    ORDER BY t
) AS made
"""


async def connected() -> asyncpg.Connection:
    schema = os.environ["HEADWATER_POSTGRES_SCHEMA"]
    return await asyncpg.connect(
        os.environ["HEADWATER_POSTGRES_URL"],
        server_settings={"search_path": f"{schema}, public", "jit": "off"},
    )


def rows_of(effort: Effort) -> int:
    return effort.of(100_000, 100_000, 100)


def entities_of(effort: Effort) -> int:
    return effort.of(10_000, 10_000, 10)


async def filled(effort: Effort) -> asyncpg.Connection:
    """Return a connection to the tables of a store, with its history."""
    connection = await connected()
    await connection.execute(_FILL.format(entities=entities_of(effort)))
    await connection.execute("VACUUM ANALYZE _history")
    return connection


def points(effort: Effort) -> list[tuple[int, str, datetime]]:
    """Return the rows of the frame: a number, an entity and a time."""
    dice, entities = Random(5), entities_of(effort)
    return [
        (row, f"u{dice.randint(1, entities)}", NOW - timedelta(seconds=dice.randrange(50 * 86_400)))
        for row in range(rows_of(effort))
    ]


@contextmanager
def ours(where: str, effort: Effort) -> Iterator[Rate]:
    """Rows per second of `get_historical_features`, from one Parquet file to another."""
    frame, output = Path(where) / "frame.parquet", Path(where) / "output.parquet"
    lines = Path(where) / "frame.csv"

    async def prepare() -> None:
        await (await filled(effort)).close()
        rows = [f"{entity_id},{at.isoformat()}" for _, entity_id, at in points(effort)]
        lines.write_text("\n".join(["user_id,timestamp", *rows]))
        columns = "{'user_id': 'VARCHAR', 'timestamp': 'TIMESTAMPTZ'}"
        with duckdb.connect() as duck:
            duck.execute(
                f"COPY (FROM read_csv('{lines}', columns = {columns})) TO '{frame}'"
                " (FORMAT parquet)"
            )
        await store.get_feature_history(NAMES[0], "u1")

    async def rate() -> float:
        started = time.perf_counter()
        await store.get_historical_features(frame, NAMES, output=output)
        return rows_of(effort) / (time.perf_counter() - started)

    with one_loop(rate, prepare, store) as measure:
        yield measure


_GIVEN = 'CREATE TEMPORARY TABLE given ("row" bigint, entity_id text COLLATE "C", at timestamptz)'
# In the order of the index, which is faster by a third.
_LATERAL = f"""
SELECT given."row", {", ".join(f"{name}.value, {name}.as_of" for name in NAMES)}
FROM (SELECT * FROM given ORDER BY hashtextextended(entity_id, 0), at) AS given
""" + "".join(
    f"""
LEFT JOIN LATERAL (
    SELECT h.value, h.as_of FROM _history AS h
    WHERE h.feature = '{name}' AND h.entity_id = given.entity_id AND h.as_of <= given.at
      AND hashtextextended(h.entity_id, 0) = hashtextextended(given.entity_id, 0)
    ORDER BY h.as_of DESC, h.written_at DESC, h.seq DESC LIMIT 1
) AS {name} ON true"""
    for name in NAMES
)


@contextmanager
def floor(where: str, effort: Effort) -> Iterator[Rate]:
    """Rows per second of one statement: the rows in by COPY, the values out by fetch."""
    given = points(effort)

    async def read(connection: asyncpg.Connection) -> float:
        started = time.perf_counter()
        await connection.execute(_GIVEN)
        await connection.copy_records_to_table("given", records=given)
        assert len(await connection.fetch(_LATERAL)) == len(given)
        taken = time.perf_counter() - started
        await connection.execute("DROP TABLE given")
        return len(given) / taken

    with asyncio.Runner() as runner:
        connection = runner.run(filled(effort))
        yield lambda: runner.run(read(connection))
        runner.run(connection.close())


MEASURES: dict[str, Measuring] = {"ours": ours, "floor": floor}
