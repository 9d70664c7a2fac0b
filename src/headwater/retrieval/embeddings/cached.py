"""Embeddings that all processes of a store share, by the content of the text."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from hashlib import sha256

import numpy as np

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import HeadwaterError
from headwater.ports import Cache, Cached, Embedding
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS, EmbeddingModel, TextKind
from headwater.retrieval.embeddings.metrics import CACHE


class EmbeddingCache:
    """The cached embeddings of one embedder; kinds of texts without a lifetime are not cached.

    ``scope`` distinguishes embedders that share a name.
    """

    def __init__(
        self,
        embedder: EmbeddingModel,
        cache: Cache,
        clock: Clock,
        lifetimes: Mapping[TextKind, timedelta],
        scope: str = "",
    ) -> None:
        self._name = embedder.name
        self._dimensions = embedder.dimensions
        self._cache = cache
        self._clock = clock
        self._lifetimes = lifetimes
        self._scope = sha256(scope.encode()).hexdigest()[:8] if scope else ""

    async def get(self, texts: Iterable[str], kind: TextKind) -> dict[str, Embedding]:
        """Return the embeddings that are cached, by text."""
        if kind not in self._lifetimes:
            return {}
        unique = list(texts)
        try:
            answers = await asyncio.gather(
                *(self._cache.get(self._key(text, kind)) for text in unique)
            )
        except HeadwaterError as error:
            log.warning("could not read cached embeddings", embedder=self._name, error=str(error))
            return {}
        vectors = {
            text: cached.value
            for text, cached in zip(unique, answers, strict=True)
            if cached is not None and self._is_intact(cached.value)
        }
        CACHE.labels(self._name, "hit").inc(len(vectors))
        CACHE.labels(self._name, "miss").inc(len(unique) - len(vectors))
        return vectors

    async def drops(self, kind: TextKind) -> int | None:
        """Return how often the cache was dropped so far; None if vectors cannot be cached."""
        try:
            return await self._cache.drops() if kind in self._lifetimes else None
        except HeadwaterError as error:
            log.warning("could not cache embeddings", embedder=self._name, error=str(error))
            return None

    async def put(
        self, embeddings: Mapping[str, Embedding], kind: TextKind, drops: int | None
    ) -> None:
        """Store embeddings, by text, unless values were dropped since they were asked for."""
        lifetime = self._lifetimes.get(kind)
        if lifetime is None or drops is None:
            return
        now = self._clock.micros()
        try:
            await asyncio.gather(
                *(
                    self._cache.put(
                        self._key(text, kind), Cached(embedding, now), lifetime, drops=drops
                    )
                    for text, embedding in embeddings.items()
                )
            )
        except HeadwaterError as error:
            log.warning("could not cache embeddings", embedder=self._name, error=str(error))

    def _key(self, text: str, kind: TextKind) -> str:
        content = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{CACHED_EMBEDDINGS}{self._name}{self._scope}:{self._dimensions}:{kind}:{content}"

    def _is_intact(self, embedding: Embedding) -> bool:
        if len(embedding) != self._dimensions * 4:
            return False
        length = np.linalg.norm(np.frombuffer(embedding, "<f4"))
        return bool(abs(length - 1) < 1e-3)
