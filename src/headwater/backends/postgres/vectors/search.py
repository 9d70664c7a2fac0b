"""Searches of a generation by an embedding or by words."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import asyncpg

from headwater.backends.postgres.pool import Connection
from headwater.backends.postgres.vectors.binary_rows import (
    MOST_POSITIONS,
    embedding_of,
    floats,
    lexeme,
)
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable
from headwater.backends.postgres.vectors.filters import condition
from headwater.backends.postgres.vectors.stored_text import read_metadata, unescape
from headwater.ports import Hit, Hits, VectorQuery
from headwater.settings.groups import VectorSettings

# The time of the last change is read with the rows, so that it is of the same snapshot.
_HITS = """
SELECT g.changed_at, g.chunks, g.state = 'active' AS is_active, h.*
FROM _generations AS g LEFT JOIN LATERAL ({hits}) AS h ON true WHERE g.id = $1
"""
_COLUMNS = """
c.id, c.document, c.position, c.text, c.content_hash, c.metadata::text, c.version, c.indexed_at
"""
_NEAREST = """
SELECT {columns}, c.embedding {distance} $2::real[]::{type} AS distance{embedding}
FROM {table} AS c WHERE {visible} AND {filters}
ORDER BY {order} LIMIT {limit}
"""
# An expression that the HNSW index does not have: all rows are compared.
_EXACT_ORDER = "(c.embedding {distance} $2::real[]::{type}) + 0, c.id"
_INDEX_ORDER = "c.embedding {distance} $2::real[]::{type}"
_IS_CURRENT = "c.valid_to IS NULL"
# Two conditions, so that each has its index; a chunk meets one of them.
_WAS_CURRENT = (
    "c.valid_to IS NULL AND c.valid_from <= {as_of}",
    "c.valid_to > {as_of} AND c.valid_from <= {as_of}",
)

# Postgres ranks a chunk by one term with the sum of 1/i² over the term's occurrences, divided by
# this constant. The bounds between these ranks give the number of occurrences back.
_RANK_SCALE = 1.64493406685
_RANKS = [total / _RANK_SCALE for total in accumulate(i**-2 for i in range(1, MOST_POSITIONS + 2))]
_BOUNDS = [
    _RANKS[0] / 2,
    *((low + high) / 2 for low, high in pairwise(_RANKS)),
]
_MATCHING = """
WITH searched AS ({searched}), found AS MATERIALIZED (
    SELECT asked.n, c.seq, c.length, {filters} AS is_wanted,
           width_bucket(ts_rank('{{1,1,1,1}}', c.terms, asked.term)::float8, $3::float8[]) AS tf
    FROM (SELECT n, term::tsquery FROM unnest($2::text[]) WITH ORDINALITY AS t (term, n)) AS asked
    JOIN {table} AS c ON c.terms @@ asked.term AND ({visible})
), weighted AS (
    SELECT n, ln(1 + (max(s.chunks) - count(*) + 0.5) / (count(*) + 0.5)) AS idf
    FROM found, searched AS s GROUP BY n
), scored AS (
    SELECT seq, sum(
        idf * tf * 2.2 / (tf + 1.2 * (0.25 + 0.75 * length * s.chunks / greatest(s.terms, 1)))
    ) AS score
    FROM found JOIN weighted USING (n), searched AS s WHERE is_wanted
    GROUP BY seq HAVING count(*) >= {min_terms}
    ORDER BY score DESC FETCH FIRST {limit} ROWS WITH TIES
)
SELECT {columns}, scored.score{embedding} FROM scored JOIN {table} AS c USING (seq)
ORDER BY scored.score DESC, c.id LIMIT {limit}
"""
_SEARCHED_NOW = "SELECT g.chunks::float8, g.terms::float8"
_SEARCHED_THEN = """
SELECT count(*)::float8 AS chunks, sum(length)::float8 AS terms FROM {table} AS c WHERE {visible}
"""
# How many times more chunks are searched for while the last ones have the same distance.
_MORE = 8


def search_parameters(settings: VectorSettings) -> dict[str, str]:
    """Return the parameters of pgvector in a session that searches."""
    return {
        "hnsw.ef_search": str(settings.hnsw_ef_search),
        "hnsw.iterative_scan": settings.iterative_scan,
        "hnsw.max_scan_tuples": str(settings.max_scan_tuples),
    }


async def nearest(connection: Connection, table: ChunkTable, query: VectorQuery) -> Hits:
    """Return the chunks nearest to the query's embedding.

    The rows of the index are approximate. All chunks are compared if there are fewer rows than
    wanted: the index gives up on filters that few chunks meet.
    """
    assert query.embedding is not None
    table.check(query.embedding)
    wanted = query.limit + 1
    while True:
        rows = await _fetch(connection, table, query, wanted, is_exact=False)
        found = [row for row in rows if row["id"] is not None]
        expected = (
            rows[0]["chunks"] if rows and query.filters is None and query.as_of is None else wanted
        )
        if len(found) < min(wanted, expected):
            rows = await _fetch(connection, table, query, query.limit, is_exact=True)
            break
        # A search of the past has as many of either condition, of which the last ones may be far.
        ordered = sorted(found, key=_rank)[:wanted]
        if len(ordered) < wanted or ordered[query.limit - 1]["distance"] != ordered[-1]["distance"]:
            break
        wanted *= _MORE
    return _nearest_hits(rows, table, query)


async def _fetch(
    connection: Connection, table: ChunkTable, query: VectorQuery, limit: int, *, is_exact: bool
) -> list[asyncpg.Record]:
    assert query.embedding is not None
    parameters: list[Any] = [table.generation_id, floats(query.embedding).tolist()]
    filters = "true" if query.filters is None else condition(query.filters, parameters)
    names = {"distance": table.distance, "type": table.type}
    order = (_EXACT_ORDER if is_exact else _INDEX_ORDER).format(**names)
    selects = [
        _NEAREST.format(
            columns=_COLUMNS,
            table=table.name,
            visible=visible,
            filters=filters,
            order=order,
            limit=limit,
            embedding=_embedding(table, query),
            **names,
        )
        for visible in _visible(query, parameters)
    ]
    hits = " UNION ALL ".join(f"({select})" for select in selects)
    rows: list[asyncpg.Record] = await connection.fetch(_HITS.format(hits=hits), *parameters)
    return rows


async def matching(connection: Connection, table: ChunkTable, query: VectorQuery) -> Hits:
    """Return the chunks that have enough of the query's terms, by BM25."""
    terms = [_quoted(term) for term in dict.fromkeys(query.terms) if term]
    parameters: list[Any] = [table.generation_id, terms, _BOUNDS]
    filters = "true" if query.filters is None else condition(query.filters, parameters)
    visible = " OR ".join(f"({each})" for each in _visible(query, parameters))
    searched = _SEARCHED_NOW if query.as_of is None else _SEARCHED_THEN
    hits = _MATCHING.format(
        columns=_COLUMNS,
        table=table.name,
        filters=filters,
        searched=searched.format(table=table.name, visible=visible),
        visible=visible,
        limit=query.limit,
        min_terms=query.min_terms,
        embedding=_embedding(table, query),
    )
    rows = await connection.fetch(_HITS.format(hits=hits), *parameters)
    found = [_hit(row, table, row["score"]) for row in rows if row["id"] is not None]
    return _hits(rows, query, found)


def _visible(query: VectorQuery, parameters: list[Any]) -> list[str]:
    """Return conditions, of which a chunk that is searched meets exactly one."""
    if query.as_of is None:
        return [_IS_CURRENT]
    parameters.append(query.as_of)
    return [each.format(as_of=f"${len(parameters)}::bigint") for each in _WAS_CURRENT]


def _embedding(table: ChunkTable, query: VectorQuery) -> str:
    if not query.with_embeddings:
        return ""
    return f", {table.schema}.{table.kind}_send(c.embedding) AS embedding"


def _rank(row: asyncpg.Record) -> tuple[float, str]:
    return row["distance"], row["id"]


def _nearest_hits(rows: list[asyncpg.Record], table: ChunkTable, query: VectorQuery) -> Hits:
    found = sorted((row for row in rows if row["id"] is not None), key=_rank)
    hits = [_hit(row, table, 1.0 - row["distance"]) for row in found[: query.limit]]
    return _hits(rows, query, hits)


def _hits(rows: Sequence[asyncpg.Record], query: VectorQuery, found: Sequence[Hit]) -> Hits:
    changed_at = rows[0]["changed_at"] if rows else 0
    least = query.min_score
    return Hits(
        changed_at if query.as_of is None else min(changed_at, query.as_of),
        [hit for hit in found if least is None or hit.score >= least],
        is_active=bool(rows) and rows[0]["is_active"],
    )


def _hit(row: asyncpg.Record, table: ChunkTable, score: float) -> Hit:
    sent: bytes | None = row.get("embedding")
    return Hit(
        id=unescape(row["id"]),
        document=unescape(row["document"]),
        position=row["position"],
        text=unescape(row["text"]),
        content_hash=row["content_hash"],
        metadata=read_metadata(row["metadata"]),
        version=row["version"],
        indexed_at=row["indexed_at"],
        score=score,
        embedding=None if sent is None else embedding_of(sent, is_half=table.is_half),
    )


def _quoted(term: str) -> str:
    """Return a term as a ``tsquery``."""
    text = lexeme(term).decode().replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"
