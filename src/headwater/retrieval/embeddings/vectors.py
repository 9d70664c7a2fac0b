"""The check of the vectors that an embedder returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.errors import EmbeddingError
from headwater.ports import Embedding
from headwater.retrieval.embeddings.embedder import Embedder


def to_embeddings(embedder: Embedder, vectors: Any, count: int) -> list[Embedding]:
    """Return vectors at unit length; raise EmbeddingError if one is missing or cannot be used."""
    if len(vectors) != count:
        raise EmbeddingError(
            embedder.name,
            f"it returned {len(vectors)} vectors for {count} texts",
            "it must return one vector for each text, in their order",
        )
    return [_to_embedding(embedder, vector) for vector in vectors]


def _to_embedding(embedder: Embedder, vector: Any) -> Embedding:
    try:
        numbers = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(
            embedder.name, "it returned a vector that is not a list of numbers", _RETURN_NUMBERS
        ) from error
    if numbers.shape != (embedder.dimensions,):
        found = numbers.size if numbers.ndim == 1 else f"{numbers.shape}"
        raise EmbeddingError(
            embedder.name,
            f"it returned a vector of {found} dimensions, not {embedder.dimensions}",
            "declare the model's number with Index(dimensions=…) or embeddings.dimensions",
        )
    length = np.linalg.norm(numbers)
    if not np.isfinite(length) or length == 0:
        problem = "only zeros" if length == 0 else "NaN or an infinite number"
        raise EmbeddingError(
            embedder.name, f"it returned a vector with {problem}", "a zero vector has no direction"
        )
    return (numbers / length).astype("<f4").tobytes()


_RETURN_NUMBERS = "it must return a list of numbers, or a NumPy array, for each text"
