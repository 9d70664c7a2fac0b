"""Searches of one generation: by embeddings with exact cosines, by words with BM25."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors import terms
from headwater.backends.sqlite.vectors.blocks import VectorBlocks
from headwater.backends.sqlite.vectors.chunk_columns import (
    ChunkColumns,
    ColumnsView,
    GenerationState,
    Integers,
)
from headwater.backends.sqlite.vectors.filters import meeting
from headwater.backends.sqlite.vectors.hits import Candidates, read_hits
from headwater.backends.sqlite.vectors.nearest import nearest_vectors
from headwater.errors import BackendError, InvalidInputError
from headwater.model.indexes import IndexSpec
from headwater.ports import Hits, VectorQuery

Mask = NDArray[np.bool_]
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
_NOTHING = Hits(0, (), is_active=False)


def _is_pruned(moment: int, before: GenerationState, after: GenerationState) -> bool:
    """Return whether chunks of a moment may have been removed between two states."""
    return before.pruned_before < after.pruned_before and moment < after.pruned_before


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
            if hits is not None and after is not None and not _is_pruned(moment, state, after):
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
        if query.embedding is None or len(query.embedding) != state.dimensions * 4:
            raise InvalidInputError(
                f"the embedding of the query has {len(query.embedding or b'') / 4:g} dimensions, "
                f"but generation {query.generation} of index {query.index!r} has "
                f"{state.dimensions}; use the embedder of the generation"
            )
        searched = view.current(moment)
        if query.filters is not None:
            met = meeting(self._home, state.index_id, query.filters, view.metadata_ids)
            searched = met if searched is None else met & searched
        blocks = self._parts(state).blocks
        vector = np.frombuffer(query.embedding, "<f4")
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
