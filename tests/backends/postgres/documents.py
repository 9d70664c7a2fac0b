"""Documents, embeddings and queries of these tests."""

from __future__ import annotations

import math
import random
from array import array
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from headwater.model.indexes import IndexSpec
from headwater.ports import DocumentWrite, Embedding, IndexedChunk, VectorQuery


def spec(dimensions: int = 3, embedder: str = "test/words") -> IndexSpec:
    return IndexSpec(embedder=embedder, dimensions=dimensions, chunk_tokens=400, overlap=40)


def embedding(*numbers: float) -> Embedding:
    """Return numbers scaled to unit length."""
    length = math.sqrt(sum(number * number for number in numbers)) or 1.0
    return array("f", [number / length for number in numbers]).tobytes()


def random_embedding(random_: random.Random, dimensions: int) -> Embedding:
    return embedding(*(random_.gauss(0, 1) for _ in range(dimensions)))


def chunk(
    document: str,
    position: int,
    text: str,
    vector: Embedding | None = None,
    terms: Sequence[str] | None = None,
    index: str = "docs",
) -> IndexedChunk:
    content = sha256(text.encode()).hexdigest()
    if vector is None:
        vector = random_embedding(random.Random(text), 3)
    words = text.split() if terms is None else terms
    return IndexedChunk(
        f"{index}/{document}#{content[:16]}", position, text, f"sha256:{content}", vector, words
    )


def write(
    document: str,
    *texts: str,
    metadata: Mapping[str, Any] | None = None,
    generation: int = 1,
    version: int | None = None,
    vectors: Sequence[Embedding] | None = None,
    index: str = "docs",
) -> DocumentWrite:
    """Return a write of a document with one chunk for each text; without a text, a removal."""
    given: Sequence[Embedding | None] = vectors or [None] * len(texts)
    return DocumentWrite(
        index=index,
        document=document,
        text="\n".join(texts) if texts else None,
        metadata=metadata or {},
        generation=generation,
        chunks=[
            chunk(document, position, text, vector, index=index)
            for position, (text, vector) in enumerate(zip(texts, given, strict=True))
        ],
        version=version,
    )


def near(vector: Embedding, limit: int = 10, **query: Any) -> VectorQuery:
    return VectorQuery(**{"index": "docs", "generation": 1, **query}, limit=limit, embedding=vector)


def with_terms(*terms: str, limit: int = 10, **query: Any) -> VectorQuery:
    return VectorQuery(**{"index": "docs", "generation": 1, **query}, limit=limit, terms=terms)
