"""The best candidates of a search, read from the database as hits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.home import Home
from headwater.backends.sqlite.vectors.chunk_columns import GenerationState, Integers
from headwater.ports import Hit, VectorQuery

Scores = NDArray[np.floating[Any]]

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
_decode_metadata = msgspec.json.Decoder().decode


class Candidates(NamedTuple):
    """Candidates of a search: positions in the columns and their scores."""

    positions: Integers
    scores: Scores


def read_hits(
    home: Home, query: VectorQuery, state: GenerationState, found: Candidates
) -> list[Hit] | None:
    """Return the best hits, best first; None if chunks were removed during the search."""
    scores = _best(home, query, state, found)
    ids = _json([*scores])
    embeddings = dict(home.read(_EMBEDDINGS, (ids,))) if query.with_embeddings else {}
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
        ) in home.read(_HITS, (ids,))
    ]
    if len(hits) < len(scores):
        return None
    hits.sort(key=lambda hit: (-hit.score, hit.id))
    return hits


def _best(
    home: Home, query: VectorQuery, state: GenerationState, found: Candidates
) -> dict[int, float]:
    """Return the ids and scores of the best candidates; of equal ones, by chunk id."""
    positions, scores = found
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
