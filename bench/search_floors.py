"""The floors of searching and indexing: the bare queries and inserts on each store."""

import asyncio
import itertools
import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np

from bench import chunks
from bench.case import Effort
from bench.floors import Measuring, Rate, calls_per_second, micros

_TABLE = """
CREATE TABLE found (
    id INTEGER PRIMARY KEY, chunk_id TEXT, document TEXT, position INTEGER, text TEXT,
    content_hash TEXT, metadata TEXT, version INTEGER, indexed_at INTEGER
)
"""
_COLUMNS = "chunk_id, document, position, text, content_hash, metadata, version, indexed_at"
_FETCH = f"SELECT id, {_COLUMNS} FROM found WHERE id IN ({','.join('?' * chunks.TOP_K)})"

decode = json.loads


def row(number: int) -> tuple[Any, ...]:
    """Return the columns of a chunk besides its number and its vector."""
    text = chunks.text(number)
    digest = sha256(text.encode()).hexdigest()
    name = f"d{number}"
    metadata = json.dumps(chunks.metadata(number))
    chunk_id = f"docs/{name}#{digest[:16]}"
    return chunk_id, name, 0, text, f"sha256:{digest}", metadata, 1, micros()


@contextmanager
def embedded(where: str, effort: Effort) -> Iterator[Rate]:
    """Searches per second: all cosines from a mapped file, and the rows of the best chunks."""
    folder = Path(where)
    np.save(folder / "vectors.npy", chunks.vectors()[: chunks.number_of(effort)])
    matrix = np.load(folder / "vectors.npy", mmap_mode="r")
    queries = itertools.cycle(chunks.queries())
    with closing(sqlite3.connect(folder / "floor.db")) as db:
        db.execute(_TABLE)
        rows = [(number, *row(number)) for number in range(chunks.number_of(effort))]
        db.executemany(f"INSERT INTO found VALUES ({','.join('?' * 9)})", rows)
        db.commit()

        def search() -> list[tuple[float, Any]]:
            scores = matrix @ next(queries)
            best = np.argpartition(scores, -chunks.TOP_K)[-chunks.TOP_K :].tolist()
            found = db.execute(_FETCH, best).fetchall()
            hits = [(float(scores[id_]), (*rest, decode(rest[5]))) for id_, *rest in found]
            return sorted(hits, key=lambda hit: -hit[0])

        assert len(search()) == chunks.TOP_K
        yield lambda: calls_per_second(search, effort.seconds)


_POSTGRES_TABLE = f"""
DROP SCHEMA IF EXISTS search_floor CASCADE;
CREATE SCHEMA search_floor;
SET search_path = search_floor, public;
CREATE EXTENSION IF NOT EXISTS vector SCHEMA public;
CREATE TABLE found (
    id bigint PRIMARY KEY, chunk_id text, document text, position integer, text text,
    content_hash text, metadata json, version integer, indexed_at bigint,
    embedding public.vector({chunks.DIMENSIONS})
);
CREATE INDEX ON found USING hnsw (embedding public.vector_cosine_ops)
WITH (m = 16, ef_construction = 64);
"""
_POSTGRES_SEARCH = f"""
SELECT {_COLUMNS}, embedding <=> $1::real[]::public.vector AS distance FROM search_floor.found
ORDER BY embedding <=> $1::real[]::public.vector LIMIT {chunks.TOP_K}
"""


@contextmanager
def postgres(url: str, effort: Effort) -> Iterator[Rate]:
    """Searches per second: one statement with an HNSW index, as wide as ours, over asyncpg."""
    queries = itertools.cycle(chunks.queries())

    async def opened() -> asyncpg.Connection:
        connection = await asyncpg.connect(url)
        await connection.execute(_POSTGRES_TABLE)
        await connection.execute(
            "SET hnsw.ef_search = 100; SET hnsw.iterative_scan = relaxed_order"
        )
        await connection.executemany(
            "INSERT INTO found VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10::real[]::public.vector)",
            [
                (number, *row(number), vector)
                for number, vector in enumerate(
                    chunks.vectors()[: chunks.number_of(effort)].tolist()
                )
            ],
        )
        await connection.execute("ANALYZE found")
        return connection

    with asyncio.Runner() as runner:
        connection = runner.run(opened())

        async def search() -> None:
            rows = await connection.fetch(_POSTGRES_SEARCH, next(queries).tolist())
            hits = [(1.0 - row["distance"], decode(row["metadata"])) for row in rows]
            assert len(hits) == chunks.TOP_K

        async def rate() -> float:
            searches, start = 0, time.perf_counter()
            while (elapsed := time.perf_counter() - start) < effort.seconds:
                await search()
                searches += 1
            return searches / elapsed

        try:
            yield lambda: runner.run(rate())
        finally:
            runner.run(connection.close())


MEASURES: dict[str, Measuring] = {
    "embedded": embedded,
    "postgres": postgres,
}
