"""The check of the vectors that an embedder returns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headwater.errors import EmbeddingError
from headwater.ports import Embedding
from headwater.retrieval.embeddings.embedder import EmbeddingModel


def to_embeddings(embedder: EmbeddingModel, vectors: Any, count: int) -> list[Embedding]:
    """Return vectors at unit length; raise EmbeddingError if one is missing or cannot be used."""
    if len(vectors) != count:
        raise EmbeddingError(
            embedder.name,
            f"it returned {len(vectors)} vectors for {count} texts",
            "it must return one vector for each text, in their order",
        )
    with np.errstate(over="ignore", invalid="ignore"):
        return [_unit(embedder, _numbers(embedder, vector)) for vector in vectors]


def _unit(embedder: EmbeddingModel, numbers: NDArray[np.float64]) -> Embedding:
    length = math.sqrt(numbers.dot(numbers))
    if not math.isfinite(length):
        raise EmbeddingError(
            embedder.name,
            "it returned a vector with NaN, an infinite number or numbers that are too large",
            "it must return finite numbers, best of a length near 1",
        )
    if length == 0:
        raise EmbeddingError(
            embedder.name,
            "it returned a vector with only zeros",
            "a zero vector has no direction",
        )
    return (numbers / length).astype("<f4").tobytes()


def _numbers(embedder: EmbeddingModel, vector: Any) -> NDArray[np.float64]:
    try:
        numbers = np.asarray(vector, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EmbeddingError(
            embedder.name, "it returned a vector that is not a list of numbers", _RETURN_NUMBERS
        ) from error
    if numbers.shape != (embedder.dimensions,):
        size = numbers.size if numbers.ndim == 1 else f"{numbers.shape}"
        raise EmbeddingError(
            embedder.name,
            f"it returned a vector of {size} dimensions, not {embedder.dimensions}",
            "declare the model's number with Index(dimensions=…) or embeddings.dimensions",
        )
    return numbers


_RETURN_NUMBERS = "it must return a list of numbers, or a NumPy array, for each text"
