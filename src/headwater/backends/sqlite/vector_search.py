"""Searches of one generation: exact cosines and BM25, computed with NumPy."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite import terms
from headwater.backends.sqlite.chunk_columns import ChunkColumns, ColumnsView, GenerationState
from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.metadata_filters import meeting
from headwater.errors import InvalidInputError
from headwater.ports import Embedding, Hit, Hits, IndexSpec, VectorQuery

T = TypeVar("T")

Mask = NDArray[np.bool_]
Scores = NDArray[np.float64]

K1, B = 1.2, 0.75
# A smaller search takes less time than a thread hop and its wait for the interpreter lock.
_INLINE_BYTES = 2 << 20

_GENERATION = """
SELECT indexes.id, generations.id, spec, generations.changed_at, pruned_before, last_seq
FROM indexes JOIN generations ON index_id = indexes.id WHERE name = ? AND number = ?
"""
_HITS = """
SELECT chunks.id, chunk_id, document, position, chunk_contents.text, content_hash,
    chunk_contents.version, chunk_contents.indexed_at, metadata
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
_POSITIONS = "SELECT group_concat(doc - ?, ' ') FROM chunk_term_positions WHERE term = ?"
_NOTHING = Hits(0, ())
_decode_spec = msgspec.json.Decoder(IndexSpec).decode
_decode_metadata = msgspec.json.decode


class Found(NamedTuple):
    """Candidates of a search: positions in the columns and their scores."""

    positions: NDArray[np.int64]
    scores: Scores


class VectorSearch:
    """Searches of the generations of a home."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._columns: dict[int, ChunkColumns] = {}

    async def nearest(self, query: VectorQuery) -> Hits:
        return await self._run(query, self._nearest)

    async def matching(self, query: VectorQuery) -> Hits:
        return await self._run(query, self._matching)

    async def _run(
        self, query: VectorQuery, search: Callable[[VectorQuery, GenerationState], Hits]
    ) -> Hits:
        state = self._state(query)
        if state is None:
            return _NOTHING
        if state.last_seq * state.dimensions * 4 <= _INLINE_BYTES:
            return search(query, state)
        return await asyncio.to_thread(search, query, state)

    def _state(self, query: VectorQuery) -> GenerationState | None:
        for index, id_, spec, *rest in self._home.read(
            _GENERATION, (query.index, query.generation)
        ):
            return GenerationState(index, id_, _decode_spec(spec).dimensions, *rest)
        return None

    def _nearest(self, query: VectorQuery, state: GenerationState) -> Hits:
        view, moment = self._view(query, state)
        if query.embedding is None or len(query.embedding) != state.dimensions * 4:
            raise InvalidInputError(
                f"the query's embedding does not have {state.dimensions} dimensions, as index "
                f"{query.index!r} has; embed it with the embedder of generation {query.generation}"
            )
        current = self._searched(query, state, view, moment)
        wanted = np.frombuffer(query.embedding, "<f4").astype(np.float64)
        rows = self._home.read(
            "SELECT id, embedding FROM chunk_embeddings WHERE id > ? AND id <= ?",
            (state.first_id, state.first_id + len(view.valid_from)),
        )
        positions = np.array([id_ - state.first_id - 1 for id_, _ in rows], np.int64)
        matrix = np.frombuffer(b"".join([each for _, each in rows]), "<f4")
        matrix = matrix.reshape(len(rows), state.dimensions)
        if current is not None:
            kept = current[positions]
            positions, matrix = positions[kept], matrix[kept]
        scores = (matrix.astype(np.float64) * wanted).sum(axis=1)
        return self._hits(query, state, moment, Found(positions, scores))

    def _matching(self, query: VectorQuery, state: GenerationState) -> Hits:
        view, moment = self._view(query, state)
        current = view.current(moment)
        lengths = view.lengths if current is None else view.lengths[current]
        scores = np.zeros(len(view.lengths))
        matched = np.zeros(len(view.lengths), np.int32)
        norms = (
            K1 * (1 - B + B * view.lengths / max(float(lengths.mean()), 1e-9))
            if len(lengths)
            else view.lengths
        )
        for term in sorted({*query.terms} - {""}):
            positions, counts = self._occurrences(state, term, len(scores))
            if current is not None:
                kept = current[positions]
                positions, counts = positions[kept], counts[kept]
            frequency = len(positions)
            idf = np.log1p((len(lengths) - frequency + 0.5) / (frequency + 0.5))
            scores[positions] += idf * counts * (K1 + 1) / (counts + norms[positions])
            matched[positions] += 1
        if query.filters is not None:
            scores[~meeting(self._home, state.index_id, query.filters, view.metadata_ids)] = 0.0
        positions = np.flatnonzero((scores > 0) & (matched >= query.min_terms))
        return self._hits(query, state, moment, Found(positions, scores[positions]))

    def _occurrences(
        self, state: GenerationState, term: str, size: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        token = terms.token(state.id, term)
        ((found,),) = self._home.read(_POSITIONS, (state.first_id + 1, token))
        positions = np.fromstring(found or "", np.int64, sep=" ")
        positions, counts = np.unique(positions, return_counts=True)
        known = positions < size
        return positions[known], counts[known]

    def _view(self, query: VectorQuery, state: GenerationState) -> tuple[ColumnsView, int]:
        """Return the columns and the moment as of which they are searched."""
        columns = self._columns.setdefault(state.id, ChunkColumns())
        view = columns.refreshed(self._home, state)
        return view, state.changed_at if query.as_of is None else query.as_of

    def _searched(
        self, query: VectorQuery, state: GenerationState, view: ColumnsView, moment: int
    ) -> Mask | None:
        """Return which chunks are searched; None for all."""
        current = view.current(moment)
        if query.filters is None:
            return current
        met = meeting(self._home, state.index_id, query.filters, view.metadata_ids)
        return met if current is None else met & current

    def _hits(self, query: VectorQuery, state: GenerationState, moment: int, found: Found) -> Hits:
        scores = self._best(query, state, found)
        rows = self._home.read(_HITS, (_json(list(scores)),))
        embeddings = self._embeddings(list(scores)) if query.with_embeddings else {}
        hits = [
            Hit(
                id=chunk_id,
                document=document,
                position=position,
                text=text,
                content_hash=content_hash,
                metadata=_decode_metadata(metadata),
                version=version,
                indexed_at=indexed_at,
                score=scores[id_],
                embedding=embeddings.get(id_),
            )
            for (
                id_,
                chunk_id,
                document,
                position,
                text,
                content_hash,
                version,
                indexed_at,
                metadata,
            ) in rows
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.id))
        return Hits(min(moment, state.changed_at), hits)

    def _best(self, query: VectorQuery, state: GenerationState, found: Found) -> dict[int, float]:
        """Return the ids and scores of the best candidates; of equal ones, by chunk id."""
        positions, scores = found
        if query.min_score is not None:
            kept = scores >= query.min_score
            positions, scores = positions[kept], scores[kept]
        ids = positions + state.first_id + 1
        if len(scores) <= query.limit:
            return dict(zip(ids.tolist(), scores.tolist(), strict=True))
        last = np.partition(scores, -query.limit)[-query.limit]
        above, tied = scores > last, ids[scores == last]
        best = dict(zip(ids[above].tolist(), scores[above].tolist(), strict=True))
        rest = self._home.read(_FIRST_IDS, (_json(tied.tolist()), query.limit - len(best)))
        return best | {id_: float(last) for (id_,) in rest}

    def _embeddings(self, ids: Sequence[int]) -> dict[int, Embedding]:
        return dict(self._home.read(_EMBEDDINGS, (_json(ids),)))


def _json(ids: Sequence[int]) -> str:
    return msgspec.json.encode(ids).decode()
