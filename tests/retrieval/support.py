"""Helpers for tests of indexes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from zlib import crc32

from headwater import Chunk, FeatureStore, Index

DIMENSIONS = 64


class Words:
    """An embedder whose vectors count words; it records the texts that it was given."""

    def __init__(self, dimensions: int = DIMENSIONS) -> None:
        self.dimensions = dimensions
        self.texts: list[str] = []
        self.failures: list[Exception] = []
        """Raised by the next calls, the first one first."""

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        if self.failures:
            raise self.failures.pop(0)
        self.texts += texts
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vector = [0.01] * self.dimensions
        for word in text.lower().replace(".", " ").replace("?", " ").split():
            vector[crc32(word.encode()) % self.dimensions] += 1
        return vector


class Paused(Words):
    """An embedder that waits until the test lets it go on."""

    def __init__(self) -> None:
        super().__init__()
        self.is_called = asyncio.Event()
        self.may_go_on = asyncio.Event()

    async def __call__(self, texts: Sequence[str]) -> list[list[float]]:
        self.is_called.set()
        await self.may_go_on.wait()
        return await super().__call__(texts)


def declare_docs(store: FeatureStore, embedder: Words | None = None, **options: Any) -> Words:
    """Declare the index ``docs`` with an embedder that counts words, and return the embedder."""
    words = embedder or Words()
    Index(store, "docs", embedder=words, dimensions=words.dimensions, **options)
    return words


def documents(chunks: Sequence[Chunk]) -> list[str | None]:
    """Return the documents of chunks."""
    return [chunk.document for chunk in chunks]


def texts(chunks: Sequence[Chunk]) -> list[str]:
    """Return the texts of chunks."""
    return [chunk.text for chunk in chunks]


PARCELS = "Parcels arrive within three days."
RETURNS = "Returns are free for thirty days."
GIRAFFES = "Giraffes are tall animals."


async def index_all(store: FeatureStore) -> None:
    """Index three documents."""
    await store.index("docs", "parcels", PARCELS, {"lang": "en", "year": 2024})
    await store.index("docs", "returns", RETURNS, {"lang": "en", "year": 2020})
    await store.index("docs", "giraffes", GIRAFFES, {"lang": "de", "tags": ["zoo"]})
