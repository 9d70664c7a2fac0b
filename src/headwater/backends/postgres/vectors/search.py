"""Searches of a generation by an embedding or by words."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import Any

import asyncpg
import msgspec

from headwater.backends.document_plan import check_embedding
from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.vectors.chunk_tables import ChunkTable
from headwater.backends.postgres.vectors.stored_forms import (
    MOST_POSITIONS,
    comparable,
    escape,
    lexeme,
    read_metadata,
    unescape,
)
from headwater.ports import AllOf, AnyOf, Compare, Filter, Hit, Hits, Not, VectorQuery
from headwater.settings.servers import VectorSettings

# The time of the last change is read with the rows, so that it is of the same snapshot.
_HITS = """
SELECT g.changed_at, g.chunks, g.state = 'active' AS is_active, h.*
FROM _generations AS g LEFT JOIN LATERAL ({hits}) AS h ON true WHERE g.id = $1
"""
_COLUMNS = """
c.id, c.document, c.position, c.text, c.content_hash, c.version, c.indexed_at, c.metadata::text
"""
# The places of columns in the rows of a search.
_ID = 3
_SCORE = 11
_RANK = itemgetter(_SCORE, _ID)
_NEAREST = """
SELECT {columns}, c.embedding {distance} $2::{type} AS distance{embedding}
FROM {table} AS c WHERE {visible} AND {filters}
ORDER BY {order} LIMIT {limit}
"""
# An expression that the HNSW index does not have: all rows are compared.
_EXACT_ORDER = "(c.embedding {distance} $2::{type}) + 0, c.id"
_INDEX_ORDER = "c.embedding {distance} $2::{type}"
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
_SIGNS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_encode = msgspec.json.Encoder().encode


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
    check_embedding(query.embedding, table.dimensions)
    limit = query.limit + 1
    while True:
        rows = await _fetch(connection, table, query, limit, is_exact=False)
        ranked = _found(rows)
        expected = (
            rows[0]["chunks"] if rows and query.filters is None and query.as_of is None else limit
        )
        if len(ranked) < min(limit, expected):
            rows = await _fetch(connection, table, query, query.limit, is_exact=True)
            ranked = _found(rows)
            break
        # A search of the past has as many of either condition, of which the last ones may be far.
        if len(ranked) < limit or ranked[query.limit - 1][_SCORE] != ranked[limit - 1][_SCORE]:
            break
        limit *= _MORE
    hits = [_hit(row, 1.0 - row[_SCORE]) for row in ranked[: query.limit]]
    return _hits(rows, query, hits)


async def _fetch(
    connection: Connection, table: ChunkTable, query: VectorQuery, limit: int, *, is_exact: bool
) -> list[asyncpg.Record]:
    parameters: list[Any] = [table.generation_id, query.embedding]
    filters = "true" if query.filters is None else condition(query.filters, parameters)
    visible = _visible(query, parameters)
    statement = _nearest(
        table, visible, filters, limit, is_exact=is_exact, with_embeddings=query.with_embeddings
    )
    rows: list[asyncpg.Record] = await connection.fetch(statement, *parameters)
    return rows


@lru_cache(maxsize=100)
def _nearest(
    table: ChunkTable,
    visible: tuple[str, ...],
    filters: str,
    limit: int,
    *,
    is_exact: bool,
    with_embeddings: bool,
) -> str:
    """Return the statement that finds the chunks nearest to an embedding."""
    names = {"distance": table.distance, "type": table.type}
    order = (_EXACT_ORDER if is_exact else _INDEX_ORDER).format(**names)
    selects = [
        _NEAREST.format(
            columns=_COLUMNS,
            table=table.name,
            visible=visibility,
            filters=filters,
            order=order,
            limit=limit,
            embedding=_embedding(is_wanted=with_embeddings),
            **names,
        )
        for visibility in visible
    ]
    return _HITS.format(hits=" UNION ALL ".join(f"({select})" for select in selects))


async def matching(connection: Connection, table: ChunkTable, query: VectorQuery) -> Hits:
    """Return the chunks that have enough of the query's terms, by BM25."""
    terms = [_quoted(term) for term in dict.fromkeys(query.terms) if term]
    parameters: list[Any] = [table.generation_id, terms, _BOUNDS]
    filters = "true" if query.filters is None else condition(query.filters, parameters)
    visible = " OR ".join(f"({visibility})" for visibility in _visible(query, parameters))
    searched = _SEARCHED_NOW if query.as_of is None else _SEARCHED_THEN
    hits = _MATCHING.format(
        columns=_COLUMNS,
        table=table.name,
        filters=filters,
        searched=searched.format(table=table.name, visible=visible),
        visible=visible,
        limit=query.limit,
        min_terms=query.min_terms,
        embedding=_embedding(is_wanted=query.with_embeddings),
    )
    rows = await connection.fetch(_HITS.format(hits=hits), *parameters)
    matches = [_hit(row, row[_SCORE]) for row in rows if row[_ID] is not None]
    return _hits(rows, query, matches)


def _visible(query: VectorQuery, parameters: list[Any]) -> tuple[str, ...]:
    """Return conditions, of which a chunk that is searched meets exactly one."""
    if query.as_of is None:
        return (_IS_CURRENT,)
    parameters.append(query.as_of)
    as_of = f"${len(parameters)}::bigint"
    return tuple(visibility.format(as_of=as_of) for visibility in _WAS_CURRENT)


def _embedding(*, is_wanted: bool) -> str:
    return ", c.embedding" if is_wanted else ""


def _found(rows: list[asyncpg.Record]) -> list[asyncpg.Record]:
    """Return the rows of chunks, nearest first."""
    return sorted((row for row in rows if row[_ID] is not None), key=_RANK)


def _hits(rows: Sequence[asyncpg.Record], query: VectorQuery, hits: Sequence[Hit]) -> Hits:
    changed_at = rows[0]["changed_at"] if rows else 0
    least = query.min_score
    return Hits(
        changed_at if query.as_of is None else min(changed_at, query.as_of),
        [hit for hit in hits if least is None or hit.score >= least],
        is_active=bool(rows) and rows[0]["is_active"],
    )


def _hit(row: asyncpg.Record, score: float) -> Hit:
    id_, document, position, text, *fields, metadata = row[_ID:_SCORE]
    texts = (unescape(id_), unescape(document), position, unescape(text))
    return Hit(*(*texts, *fields, read_metadata(metadata), score, row.get("embedding")))


def _quoted(term: str) -> str:
    """Return a term as a ``tsquery``."""
    text = lexeme(term).decode().replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def condition(given: Filter, parameters: list[Any]) -> str:
    """Return SQL that is true or false, never NULL; values are appended to the parameters."""
    if isinstance(given, AllOf):
        return _joined(" AND ", "true", given.conditions, parameters)
    if isinstance(given, AnyOf):
        return _joined(" OR ", "false", given.conditions, parameters)
    if isinstance(given, Not):
        return f"NOT {condition(given.condition, parameters)}"
    return f"coalesce({_comparison(given, parameters)}, false)"


def _joined(word: str, empty: str, conditions: Any, parameters: list[Any]) -> str:
    return f"({word.join(condition(inner, parameters) for inner in conditions) or empty})"


def _comparison(given: Compare, parameters: list[Any]) -> str:
    if given.operator in _SIGNS:
        return _order(given, comparable(given.value), parameters)
    field = _field(given, parameters)
    if given.operator == "in":
        values: Any = given.value
        accepted = _parameter([_json(value) for value in values], parameters)
        return f"{field} @> ANY ({accepted}::jsonb[])"
    # A scalar contains itself, and a list its elements.
    return f"{field} @> {_parameter(_json(given.value), parameters)}::jsonb"


def _order(given: Compare, value: Any, parameters: list[Any]) -> str:
    sign = _SIGNS[given.operator]
    if isinstance(value, str):
        field, operand = _field(given, parameters), _parameter(value, parameters)
        # Compared by code points, which jsonb does not.
        text = f"({field} #>> '{{}}') COLLATE \"C\""
        return f"jsonb_typeof({field}) = 'string' AND {text} {sign} {operand}::text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "false"
    field, operand = _field(given, parameters), _parameter(_json(value), parameters)
    return f"jsonb_typeof({field}) = 'number' AND {field} {sign} {operand}::jsonb"


def _field(given: Compare, parameters: list[Any]) -> str:
    return f"(c.fields -> {_parameter(escape(given.field), parameters)}::text)"


def _json(value: Any) -> str:
    return _encode(comparable(value)).decode()


def _parameter(value: Any, parameters: list[Any]) -> str:
    parameters.append(value)
    return f"${len(parameters)}"
