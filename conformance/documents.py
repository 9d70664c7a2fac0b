"""Documents of an index, for the conformance tests of ``VectorIndex``."""

from __future__ import annotations

import hashlib
import struct
from array import array
from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import msgspec

from headwater.model.indexes import IndexSpec, StoredDocument
from headwater.ports import (
    DocumentWrite,
    Embedding,
    Hit,
    Hits,
    IndexedChunk,
    VectorIndex,
    VectorQuery,
)

SPEC = IndexSpec(embedder="test/four", dimensions=4, chunk_tokens=400, overlap=40)
OTHER_SPEC = msgspec.structs.replace(SPEC, overlap=0)
EAST: Sequence[float] = (1, 0, 0, 0)
NORTH: Sequence[float] = (0, 1, 0, 0)


def embedding(*numbers: float) -> Embedding:
    """Return numbers as a vector of unit length."""
    length = sqrt(sum(number * number for number in numbers))
    return struct.pack(f"<{len(numbers)}f", *(number / length for number in numbers))


def cosine(first: Embedding, second: Embedding) -> float:
    """Return the cosine of two vectors of unit length."""
    pairs: zip[tuple[float, float]] = zip(array("f", first), array("f", second), strict=True)
    return sum(one * other for one, other in pairs)


def chunk(
    document: str,
    text: str,
    position: int = 0,
    vector: Sequence[float] = EAST,
    index: str = "docs",
) -> IndexedChunk:
    """Return a chunk that is found by the words of its text."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return IndexedChunk(
        id=f"{index}/{document}#{digest[:16]}",
        position=position,
        text=text,
        content_hash=f"sha256:{digest}",
        embedding=embedding(*vector),
        terms=text.split(),
    )


async def stored_document(vectors: VectorIndex, name: str) -> StoredDocument | None:
    """Return the current version of a document."""
    return (await vectors.documents("docs", [name])).get(name)


def document(
    name: str,
    *texts: str,
    metadata: Mapping[str, Any] | None = None,
    vectors: Sequence[Sequence[float]] = (),
    generation: int = 1,
    version: int | None = None,
    index: str = "docs",
) -> DocumentWrite:
    """Return a document with a chunk for each text."""
    pairs = zip(texts, vectors or [EAST] * len(texts), strict=True)
    return DocumentWrite(
        index=index,
        document=name,
        text="\n".join(texts),
        metadata=metadata or {},
        generation=generation,
        chunks=[chunk(name, text, n, vector, index) for n, (text, vector) in enumerate(pairs)],
        version=version,
    )


def removal(name: str, generation: int = 1) -> DocumentWrite:
    """Return the removal of a document."""
    return DocumentWrite(index="docs", document=name, text=None, generation=generation)


def near(vector: Sequence[float] = EAST, **options: Any) -> VectorQuery:
    """Return a search by an embedding."""
    query: dict[str, Any] = {"index": "docs", "generation": 1, "limit": 100} | options
    return VectorQuery(embedding=embedding(*vector), **query)


def words(*terms: str, **options: Any) -> VectorQuery:
    """Return a search by words."""
    query: dict[str, Any] = {"index": "docs", "generation": 1, "limit": 100} | options
    return VectorQuery(terms=terms, **query)


def texts(hits: Hits) -> list[str]:
    """Return the texts of the chunks that were found, best first."""
    return [hit.text for hit in hits.hits]


async def listed(
    vectors: VectorIndex, *, prefix: str = "", after: str = "", limit: int = 100
) -> list[str]:
    """Return the ids of the next documents."""
    page = await vectors.list_documents("docs", prefix=prefix, after=after, limit=limit)
    return [entry.document for entry in page]


async def found(vectors: VectorIndex, **options: Any) -> dict[str, Hit]:
    """Return all chunks of a generation by their text."""
    return {hit.text: hit for hit in (await vectors.nearest(near(**options))).hits}


async def changed_at(vectors: VectorIndex, index: str = "docs") -> int:
    """Return the time of the last change of an index."""
    version = await vectors.version(index)
    assert version is not None
    return version.changed_at
