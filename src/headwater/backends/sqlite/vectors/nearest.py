"""The vectors nearest to another one, found exactly, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headwater.backends.sqlite.vectors.blocks import VectorBlocks
from headwater.backends.sqlite.vectors.chunk_columns import ColumnsView, Integers
from headwater.backends.sqlite.vectors.hits import Candidates, Scores

# More than the rounding errors of a product of vectors of unit length: every vector this close to
# the last place is compared again, with a sum whose result does not depend on its place.
_MARGIN = 1e-5
# Of a block in which fewer than one in this many vectors is searched, only these are read.
_SPARSE = 4
# Scores of which only the best one is compared at first.
_GROUP = 32


def nearest_vectors(
    blocks: VectorBlocks,
    view: ColumnsView,
    wanted: NDArray[np.float32],
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
        scores = _products(blocks.vectors(start, stop, view), wanted, part)
        if least == -np.inf:
            least = _reached(scores, limit) - _MARGIN
        near = np.flatnonzero(scores >= least)
        if len(near):
            positions = (near if part is None else part[near]) + start
            best, least = _merged(best, Candidates(positions, scores[near]), limit, least)
    return Candidates(best.positions, _exact_scores(blocks, view, wanted, best.positions))


def _reached(scores: NDArray[np.float32], limit: int) -> float:
    """Return a number that at least ``limit`` scores reach; it is near the last of the best.

    The best scores of some groups are such scores, and finding them takes a tenth of the time of
    sorting out all scores.
    """
    groups = len(scores) // _GROUP
    if groups < limit:
        return -np.inf
    best = scores[: groups * _GROUP].reshape(_GROUP, groups).max(axis=0)
    return float(np.partition(best, -limit)[-limit])


def _products(
    vectors: NDArray[np.float32], wanted: NDArray[np.float32], part: Integers | None
) -> NDArray[np.float32]:
    """Return the products of the vectors of a block, or of a part of them, with another one."""
    if part is None:
        return vectors @ wanted
    if len(part) * _SPARSE < len(vectors):
        return vectors[part] @ wanted
    return (vectors @ wanted)[part]


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
    blocks: VectorBlocks, view: ColumnsView, wanted: NDArray[np.float32], positions: Integers
) -> Scores:
    """Return the products of some vectors in double precision, each summed in the same way."""
    scores = np.empty(len(positions))
    exact = wanted.astype(np.float64)
    size = len(view.valid_from)
    for start in {position // blocks.rows * blocks.rows for position in positions.tolist()}:
        stop = min(start + blocks.rows, size)
        here = (positions >= start) & (positions < stop)
        vectors = blocks.vectors(start, stop, view)[positions[here] - start]
        scores[here] = (vectors.astype(np.float64) * exact).sum(axis=1)
    return scores
