"""Searches of one generation: by embeddings with exact cosines, by words with BM25."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.backends.document_plan import check_embedding
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors import terms
from headwater.backends.sqlite.vectors.blocks import VectorBlocks
from headwater.backends.sqlite.vectors.chunk_columns import (
    ChunkColumns,
    ColumnsView,
    GenerationState,
    Integers,
)
from headwater.backends.sqlite.vectors.metadata_values import conditions
from headwater.errors import BackendError
from headwater.model.indexes import IndexSpec
from headwater.ports import AllOf, AnyOf, Compare, Filter, Hit, Hits, Not, VectorQuery

Mask = NDArray[np.bool_]
Scores = NDArray[np.floating[Any]]


class Candidates(NamedTuple):
    """Candidates of a search: positions in the columns and their scores."""

    positions: Integers
    scores: Scores


Search = Callable[[VectorQuery, GenerationState, ColumnsView, int], Candidates]
K1, B = 1.2, 0.75
# A smaller search takes less time than a thread hop and its wait for the interpreter lock.
_TINY_BYTES = 2 << 20
# Comparing this many bytes with one vector takes some milliseconds, if nothing has to be read.
_SMALL_BYTES = 32 << 20
# Chunks that are pruned during a search make it start again.
_ATTEMPTS = 20
_GENERATION = """
SELECT indexes.id, generations.id, spec, generations.changed_at, pruned_before, last_seq,
    state = 'active'
FROM indexes JOIN generations ON index_id = indexes.id
WHERE name = ? AND number = ? AND state <> 'removed'
"""
_POSITIONS = "SELECT group_concat(doc - ?, ' ') FROM chunk_term_positions WHERE term = ?"
_HITS = """
SELECT chunks.id, metadata, chunk_id, document, position, chunk_contents.text, content_hash,
    chunk_contents.version, chunk_contents.indexed_at
FROM json_each(?) CROSS JOIN chunks ON chunks.id = value
CROSS JOIN chunk_contents ON chunk_contents.id = value
CROSS JOIN documents ON documents.id = document_id
CROSS JOIN document_metadata ON document_metadata.id = chunks.metadata_id
"""
_FIRST_IDS = """
SELECT value FROM json_each(?) CROSS JOIN chunk_contents ON chunk_contents.id = value
ORDER BY chunk_id LIMIT ?
"""
_EMBEDDINGS = """
SELECT value, embedding FROM json_each(?) CROSS JOIN chunk_embeddings
ON chunk_embeddings.id = value
"""
_decode_metadata = msgspec.json.Decoder().decode
_NOTHING = Hits(0, (), is_active=False)
# More than the rounding errors of a product of vectors of unit length: every vector this close to
# the last place is compared again, with a sum whose result does not depend on its place.
_MARGIN = 1e-5
# Of a block in which fewer than one in this many vectors is searched, only these are read.
_SPARSE = 4


@lru_cache(maxsize=64)
def _dimensions(spec: bytes) -> int:
    return msgspec.json.decode(spec, type=IndexSpec).dimensions


class _Cached(NamedTuple):
    """The parts of a generation that are kept between searches."""

    columns: ChunkColumns
    blocks: VectorBlocks


class VectorSearch:
    """Searches of the generations of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._cached: dict[int, _Cached] = {}

    async def nearest(self, query: VectorQuery) -> Hits:
        return await self._run(query, self._nearest)

    async def matching(self, query: VectorQuery) -> Hits:
        return await self._run(query, self._matching)

    async def _run(self, query: VectorQuery, search: Search) -> Hits:
        state = self._state(query)
        if state is None or query.limit <= 0:
            return _NOTHING
        if self._is_quick(query, state):
            return self._search(query, state, search)
        return await asyncio.to_thread(self._search, query, state, search)

    def _is_quick(self, query: VectorQuery, state: GenerationState) -> bool:
        """Return whether a search may run in the event loop."""
        size = state.last_seq * state.dimensions * 4
        if query.terms or query.filters is not None or size > _SMALL_BYTES:
            return size <= _TINY_BYTES
        cached = self._cached.get(state.id)
        is_loaded = cached is not None and cached.columns.is_current(state)
        return is_loaded or size <= _TINY_BYTES

    def _search(self, query: VectorQuery, state: GenerationState | None, search: Search) -> Hits:
        for _ in range(_ATTEMPTS):
            if state is None:
                return _NOTHING
            # All of it as of one moment, so that writes of other processes do not matter.
            moment = state.changed_at if query.as_of is None else query.as_of
            view = self._parts(state).columns.refreshed(self._home, state)
            ranked = search(query, state, view, moment)
            hits = read_hits(self._home, query, state, ranked)
            after = self._state(query)
            # Whether chunks of the moment may have been removed meanwhile.
            is_pruned = after is not None and state.pruned_before < after.pruned_before > moment
            if hits is not None and after is not None and not is_pruned:
                return Hits(min(moment, state.changed_at), hits, bool(state.is_active))
            state = after
        raise BackendError(
            f"index {query.index!r} could not be searched, because chunks were removed during each "
            f"of {_ATTEMPTS} attempts; try again, and raise its keep_versions if it happens often"
        )

    def _state(self, query: VectorQuery) -> GenerationState | None:
        rows = self._home.read(_GENERATION, (query.index, query.generation))
        for index_id, id_, spec, *rest in rows:
            return GenerationState(index_id, id_, _dimensions(spec), *rest)
        return None

    def _parts(self, state: GenerationState) -> _Cached:
        cached = self._cached.get(state.id)
        if cached is None:
            kept = {id_ for (id_,) in self._home.read("SELECT id FROM generations")}
            for gone in self._cached.keys() - kept:
                self._cached.pop(gone, None)
            new = _Cached(ChunkColumns(), VectorBlocks(self._home, state))
            cached = self._cached.setdefault(state.id, new)
        return cached

    def _nearest(
        self, query: VectorQuery, state: GenerationState, view: ColumnsView, moment: int
    ) -> Candidates:
        embedding = query.embedding or b""
        check_embedding(embedding, state.dimensions)
        searched = view.current(moment)
        if query.filters is not None:
            met = meeting(self._home, state.index_id, query.filters, view.metadata_ids)
            searched = met if searched is None else met & searched
        blocks = self._parts(state).blocks
        vector = np.frombuffer(embedding, "<f4")
        return nearest_vectors(blocks, view, vector, searched, query.limit)

    def _matching(
        self, query: VectorQuery, state: GenerationState, view: ColumnsView, moment: int
    ) -> Candidates:
        current = view.current(moment)
        lengths = view.lengths if current is None else view.lengths[current]
        mean = max(lengths.mean(), 1.0) if len(lengths) else 1.0
        scores = np.zeros(len(view.lengths))
        matched = np.zeros(len(view.lengths), np.int32)
        # In a fixed order, so that equal chunks have equal sums.
        for term in sorted({*query.terms} - {""}):
            positions, counts = self._occurrences(state, term, current, len(scores))
            rare = (len(lengths) - len(positions) + 0.5) / (len(positions) + 0.5)
            norms = K1 * (1 - B + B * view.lengths[positions] / mean)
            scores[positions] += np.log1p(rare) * counts * (K1 + 1) / (counts + norms)
            matched[positions] += 1
        if query.filters is not None and scores.any():
            met = meeting(self._home, state.index_id, query.filters, view.metadata_ids)
            scores *= met
        positions = np.flatnonzero((scores > 0) & (matched >= query.min_terms))
        return Candidates(positions, scores[positions])

    def _occurrences(
        self, state: GenerationState, term: str, current: Mask | None, size: int
    ) -> tuple[Integers, Integers]:
        """Return the positions of the current chunks with a term, and how often each has it."""
        token = terms.token(state.id, term)
        ((listed,),) = self._home.read(_POSITIONS, (state.first_id + 1, token))
        every = np.fromstring(listed or "", np.int64, sep=" ")
        positions, counts = np.unique(every, return_counts=True)
        # Chunks that were written after the search began have later positions.
        is_current = positions < size
        if current is not None:
            is_current &= current[np.minimum(positions, size - 1)]
        return positions[is_current], counts[is_current]


def meeting(home: Home, index_id: int, filters: Filter, metadata_ids: Integers) -> Mask:
    """Return which of the rows with these metadata meet a filter."""
    if not len(metadata_ids):
        return np.zeros(0, np.bool_)
    lowest = int(metadata_ids.min())
    size = int(metadata_ids.max()) - lowest + 1

    def of(condition: Filter) -> Mask:
        match condition:
            case Compare():
                return _holding(home, index_id, condition, lowest, size)
            case AllOf():
                return reduce(np.logical_and, map(of, condition.conditions), np.ones(size, bool))
            case AnyOf():
                return reduce(np.logical_or, map(of, condition.conditions), np.zeros(size, bool))
            case Not():
                return ~of(condition.condition)

    return of(filters)[metadata_ids - lowest]


def _holding(home: Home, index_id: int, compare: Compare, lowest: int, size: int) -> Mask:
    mask = np.zeros(size, np.bool_)
    for condition, arguments in conditions(compare):
        # One text instead of a row for each: SQLite joins ids and NumPy parses them.
        sql = (
            "SELECT group_concat(metadata_id - ?, ' ') FROM metadata_values"
            f" WHERE index_id = ? AND metadata_id BETWEEN ? AND ? AND {condition}"
        )
        bounds = (lowest, index_id, lowest, lowest + size - 1)
        ((positions,),) = home.read(sql, (*bounds, *arguments))
        mask[np.fromstring(positions or "", np.int64, sep=" ")] = True
    return mask


def nearest_vectors(
    blocks: VectorBlocks,
    view: ColumnsView,
    vector: NDArray[np.float32],
    searched: NDArray[np.bool_] | None,
    limit: int,
) -> Candidates:
    """Return at least the nearest ``limit`` vectors, and all with the same score as the last."""
    best = Candidates(np.empty(0, np.int64), np.empty(0, np.float32))
    least = -np.inf
    for start, stop in blocks.ranges(len(view.valid_from)):
        part = None if searched is None else np.flatnonzero(searched[start:stop])
        if part is not None and not len(part):
            continue
        scores = _products(blocks.vectors(start, stop, view), vector, part)
        if least == -np.inf and len(scores) > limit:
            least = float(np.partition(scores, -limit)[-limit]) - _MARGIN
        near = np.flatnonzero(scores >= least)
        if len(near):
            positions = (near if part is None else part[near]) + start
            best, least = _merged(best, Candidates(positions, scores[near]), limit, least)
    return Candidates(best.positions, _exact_scores(blocks, view, vector, best.positions))


def _products(
    vectors: NDArray[np.float32], vector: NDArray[np.float32], part: Integers | None
) -> NDArray[np.float32]:
    """Return the products of the vectors of a block, or of a part of them, with another one."""
    if part is None:
        return vectors @ vector
    if len(part) * _SPARSE < len(vectors):
        return vectors[part] @ vector
    return (vectors @ vector)[part]


def _merged(
    best: Candidates, near: Candidates, limit: int, least: float
) -> tuple[Candidates, float]:
    """Return the candidates within the margin of the last place, and the least score for that."""
    positions = np.concatenate((best.positions, near.positions))
    scores = np.concatenate((best.scores, near.scores))
    if len(scores) <= limit:
        return Candidates(positions, scores), least
    least = float(np.partition(scores, -limit)[-limit]) - _MARGIN
    kept = np.flatnonzero(scores >= least)
    return Candidates(positions[kept], scores[kept]), least


def _exact_scores(
    blocks: VectorBlocks, view: ColumnsView, vector: NDArray[np.float32], positions: Integers
) -> Scores:
    """Return the products of some vectors in double precision, each summed in the same way."""
    scores = np.empty(len(positions))
    exact = vector.astype(np.float64)
    size = len(view.valid_from)
    for start in {position // blocks.rows * blocks.rows for position in positions.tolist()}:
        stop = min(start + blocks.rows, size)
        here = (positions >= start) & (positions < stop)
        vectors = blocks.vectors(start, stop, view)[positions[here] - start]
        scores[here] = (vectors.astype(np.float64) * exact).sum(axis=1)
    return scores


def read_hits(
    home: Home, query: VectorQuery, state: GenerationState, candidates: Candidates
) -> list[Hit] | None:
    """Return the best hits, best first; None if chunks were removed during the search."""
    scores = _best(home, query, state, candidates)
    ids = _json([*scores])
    embeddings = dict(home.read(_EMBEDDINGS, (ids,))) if query.with_embeddings else {}
    hits = [
        Hit(*(*fields, _decode_metadata(metadata), scores[id_], embeddings.get(id_)))
        for id_, metadata, *fields in home.read(_HITS, (ids,))
    ]
    if len(hits) < len(scores):
        return None
    hits.sort(key=lambda hit: (-hit.score, hit.id))
    return hits


def _best(
    home: Home, query: VectorQuery, state: GenerationState, candidates: Candidates
) -> dict[int, float]:
    """Return the ids and scores of the best candidates; of equal ones, by chunk id."""
    positions, scores = candidates
    if query.min_score is not None:
        enough = scores >= query.min_score
        positions, scores = positions[enough], scores[enough]
    ids = positions + state.first_id + 1
    if len(scores) <= query.limit:
        return dict(zip(ids.tolist(), scores.tolist(), strict=True))
    last = np.partition(scores, -query.limit)[-query.limit]
    better, tied = scores > last, ids[scores == last]
    best = dict(zip(ids[better].tolist(), scores[better].tolist(), strict=True))
    rest = query.limit - len(best)
    if len(tied) > rest:
        tied = np.array(home.read(_FIRST_IDS, (_json(tied.tolist()), rest)), np.int64).ravel()
    return best | dict.fromkeys(tied.tolist(), float(last))


def _json(ids: Sequence[int]) -> str:
    return msgspec.json.encode(ids).decode()
