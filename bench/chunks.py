"""Chunks to search: texts in clusters of similar vectors, equal for all contestants."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.case import Effort

Vectors = NDArray[np.float32]

CHUNKS = 20_000
DIMENSIONS = 384
TOP_K = 10
QUERIES = 64
_CLUSTERS = 200
_SPREAD = 0.6  # of a chunk around the centre of its cluster
_SEED = 13


def number_of(effort: Effort) -> int:
    """Return how many of the chunks are indexed."""
    return effort.of(CHUNKS, CHUNKS, 100)


@cache
def vectors() -> Vectors:
    return drawn(CHUNKS)


@cache
def queries() -> Vectors:
    """Return vectors near some of the chunks."""
    rng = np.random.default_rng(_SEED + 1)
    near = vectors()[rng.integers(0, CHUNKS, QUERIES)]
    return _units(near + rng.standard_normal(near.shape) * 0.3 / np.sqrt(DIMENSIONS))


def drawn(count: int, seed: int = _SEED) -> Vectors:
    """Return vectors of unit length in clusters."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(_SEED).standard_normal((_CLUSTERS, DIMENSIONS), np.float32)
    noise = rng.standard_normal((count, DIMENSIONS), np.float32)
    return _units(centres[rng.integers(0, _CLUSTERS, count)] + _SPREAD * noise)


def _units(rows: NDArray[Any]) -> Vectors:
    units: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    return units


def text(number: int) -> str:
    """Return the text of a chunk, about 40 tokens long."""
    return (
        f"Chunk {number}. Parcels that were ordered before noon leave the warehouse on the same "
        f"working day, and the carrier sends a link by which each later step of shipment "
        f"{number * 7919 % 100_003} can be followed."
    )


def metadata(number: int) -> dict[str, object]:
    return {"lang": "en", "year": 2000 + number % 26}


def query_text(number: int) -> str:
    return f"Query {number}. Where is my parcel?"


def embedded(texts: list[str]) -> list[Vectors]:
    """Return the vectors of texts: an embedder that does nothing."""
    return [_vector(each, place) for place, each in enumerate(texts)]


def _vector(of_text: str, place: int) -> Vectors:
    kind, _, rest = of_text.partition(" ")
    if kind == "Query":
        vector: Vectors = queries()[int(rest.partition(".")[0])]
    else:
        number = int(rest.partition(".")[0]) if kind == "Chunk" else place
        vector = vectors()[number % CHUNKS]
    return vector


def saved(folder: Path, effort: Effort) -> None:
    """Write the vectors and the texts to files, for peers in their own environments."""
    number = number_of(effort)
    np.save(folder / "vectors.npy", vectors()[:number])
    np.save(folder / "queries.npy", queries())
    (folder / "texts.txt").write_text("\n".join(map(text, range(number))))
