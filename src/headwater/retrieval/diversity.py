"""Comparing embeddings with each other: cosines, and chunks that differ from each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headwater.ports import Embedding


def cosines(query: Embedding, embeddings: Sequence[Embedding]) -> list[float]:
    """Return the cosine of a query with each embedding."""
    if not embeddings:
        return []
    products = _matrix(embeddings) @ np.frombuffer(query, "<f4")
    return [float(product) for product in products]


def diversified(
    relevance: Sequence[float], embeddings: Sequence[Embedding], count: int, diversity: float
) -> list[int]:
    """Return the places of chunks by maximal marginal relevance.

    Each next chunk has the largest (1 - diversity) × relevance - diversity × similarity to the most
    similar one before it.
    """
    if not embeddings:
        return []
    matrix, worth = _matrix(embeddings), np.asarray(relevance, np.float64)
    nearest = np.full(len(worth), -np.inf)
    chosen = [int(np.argmax(worth))]
    while len(chosen) < min(count, len(worth)):
        nearest = np.maximum(nearest, matrix @ matrix[chosen[-1]])
        marginal = (1 - diversity) * worth - diversity * nearest
        marginal[chosen] = -np.inf
        chosen.append(int(np.argmax(marginal)))
    return chosen


def _matrix(embeddings: Sequence[Embedding]) -> Any:
    return np.frombuffer(b"".join(embeddings), "<f4").reshape(len(embeddings), -1)
