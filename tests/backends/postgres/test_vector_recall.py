"""The nearest chunks that the HNSW index finds, compared with all of them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.environment import PostgresEnvironment
from headwater.core.batching import batched
from headwater.ports import Compare, DocumentWrite, IndexedChunk
from tests.backends.postgres.documents import near, spec

CHUNKS, DIMENSIONS, CLUSTERS, QUERIES, LIMIT = 6_000, 32, 60, 50, 10


def clustered(
    chance: np.random.Generator, centers: NDArray[np.float64], count: int
) -> NDArray[np.float32]:
    """Return vectors of unit length around centers."""
    chosen = centers[chance.integers(0, len(centers), count)]
    vectors = chosen + 0.7 * chance.normal(size=chosen.shape)
    scaled: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return scaled.astype("<f4")


def documents(vectors: NDArray[np.float32]) -> list[DocumentWrite]:
    return [
        DocumentWrite(
            index="docs",
            document=str(number),
            text="",
            metadata={"part": number % 10, "is_rare": number % (CHUNKS // 5) == 0},
            generation=1,
            chunks=[
                IndexedChunk(str(number), 0, "", f"sha256:{number}", vector.tobytes(), ["word"])
            ],
        )
        for number, vector in enumerate(vectors)
    ]


async def test_recall_of_hnsw_is_at_least_95_percent(
    past: PostgresEnvironment, database: Connection
) -> None:
    chance = np.random.default_rng(7)
    centers = chance.normal(size=(CLUSTERS, DIMENSIONS))
    vectors, queries = clustered(chance, centers, CHUNKS), clustered(chance, centers, QUERIES)
    await past.vectors.create("docs", spec(DIMENSIONS))
    # Building the index over all chunks takes a fraction of the time of adding them one by one.
    hnsw = await database.fetchval("SELECT pg_get_indexdef('_chunks_1_embedding_idx'::regclass)")
    await database.execute("DROP INDEX _chunks_1_embedding_idx")
    for portion in batched(documents(vectors), 2_000):
        await past.vectors.write(portion)
    await database.execute(hnsw)
    await database.execute("ANALYZE")
    scores = queries @ vectors.T
    part = np.arange(CHUNKS) % 10 == 3
    for mask, filters in ((np.ones(CHUNKS, bool), None), (part, Compare("part", "eq", 3))):
        found = 0
        for query, row in zip(queries, np.where(mask, scores, -2.0), strict=True):
            hits = await past.vectors.nearest(near(query.tobytes(), LIMIT, filters=filters))
            best = {str(number) for number in np.argsort(-row)[:LIMIT]}
            assert len(hits.hits) == LIMIT
            found += len(best & {hit.id for hit in hits.hits})
            for hit in hits.hits:
                assert abs(hit.score - row[int(hit.id)]) < 1e-5
        assert found / (QUERIES * LIMIT) >= 0.95
    rare = Compare("is_rare", "eq", value=True)
    found_rare = await past.vectors.nearest(near(queries[0].tobytes(), LIMIT, filters=rare))
    assert sorted(int(hit.id) for hit in found_rare.hits) == [*range(0, CHUNKS, CHUNKS // 5)]
    plan = await database.fetch(
        "EXPLAIN SELECT id FROM _chunks_1 WHERE valid_to IS NULL"
        " ORDER BY embedding <=> $1::real[]::vector(32) LIMIT 10",
        queries[0].tolist(),
    )
    assert "_chunks_1_embedding_idx" in plan[1][0]
