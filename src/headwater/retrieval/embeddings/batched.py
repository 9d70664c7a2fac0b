"""Embedding any number of texts: each once, in batches, some at a time, and cached."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from hashlib import sha256
from itertools import chain

import numpy as np
from prometheus_client import Counter, Histogram

from headwater.core.clock import Clock
from headwater.core.logging import log
from headwater.errors import HeadwaterError
from headwater.ports import Cache, Cached, Embedding
from headwater.retrieval.embeddings.embedder import CACHED_EMBEDDINGS, EmbeddingModel, TextKind

_Flights = dict[str, "asyncio.Future[Embedding]"]

REQUESTS = Counter(
    "headwater_embedding_requests_total",
    "Batches of texts sent to a model or provider; `outcome` is `done` or `failed`.",
    ["embedder", "outcome"],
)
SECONDS = Histogram(
    "headwater_embedding_seconds",
    "Time to embed a batch, retries included.",
    ["embedder"],
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0),
)
RETRIES = Counter(
    "headwater_embedding_retries_total",
    "Requests that were sent again after an error.",
    ["embedder"],
)
TEXTS = Counter(
    "headwater_embedding_texts_total", "Texts embedded; cached ones do not count.", ["embedder"]
)
TOKENS = Counter(
    "headwater_embedding_tokens_total", "Tokens, as the provider counts them.", ["embedder"]
)
COST = Counter(
    "headwater_embedding_cost_usd_total",
    "Price of the embedded tokens in US dollars; only models with a known price.",
    ["embedder"],
)
CACHE = Counter(
    "headwater_embedding_cache_total",
    "Texts looked up in the cache; `outcome` is `hit` or `miss`.",
    ["embedder", "outcome"],
)


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


class BatchedEmbedder:
    """An embedder over a model and a cache.

    Concurrent calls share the embedding of a text. A batch is cached as soon as it is embedded, so
    that a call which failed in another batch can be repeated at the price of the rest.
    """

    min_score = None

    def __init__(self, model: EmbeddingModel, cache: EmbeddingCache, concurrency: int) -> None:
        self.name = model.name
        self.dimensions = model.dimensions
        self._model = model
        self._cache = cache
        self._concurrency = concurrency
        self._seconds, self._texts = SECONDS.labels(self.name), TEXTS.labels(self.name)
        self._done = REQUESTS.labels(self.name, "done")
        self._failed = REQUESTS.labels(self.name, "failed")
        self._flights: dict[tuple[asyncio.AbstractEventLoop, TextKind], _Flights] = {}

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        unique = dict.fromkeys(texts)
        vectors = await self._cache.get(unique, kind)
        while missing := [text for text in unique if text not in vectors]:
            vectors |= await self._embed_or_wait(missing, kind)
        return [vectors[text] for text in texts]

    async def _embed_or_wait(self, texts: Sequence[str], kind: TextKind) -> dict[str, Embedding]:
        """Embed the texts that no other call embeds, and wait for the others.

        The result lacks texts whose calls were cancelled.
        """
        loop = asyncio.get_running_loop()
        flights = self._flights.setdefault((loop, kind), {})
        others = {text: flights[text] for text in texts if text in flights}
        own = {text: loop.create_future() for text in texts if text not in flights}
        flights |= own
        try:
            await self._embed(own, kind)
        finally:
            for text, future in own.items():
                del flights[text]
                future.cancel()
            if not flights:
                self._flights.pop((loop, kind), None)
        if others:
            await asyncio.wait(others.values())
        landed = own | others
        return {text: flight.result() for text, flight in landed.items() if not flight.cancelled()}

    async def _embed(self, flights: _Flights, kind: TextKind) -> None:
        batches = deque(self._model.batches(list(flights)))
        workers = min(self._concurrency, len(batches))
        if workers == 1:
            await self._embed_batches(batches, flights, kind)
            return
        ended = await asyncio.gather(
            *(self._embed_batches(batches, flights, kind) for _ in range(workers)),
            return_exceptions=True,
        )
        for error in ended:
            if error is not None:
                raise error

    async def _embed_batches(
        self, batches: deque[Sequence[str]], flights: _Flights, kind: TextKind
    ) -> None:
        while batches:
            batch = batches.popleft()
            drops = await self._cache.drops(kind)
            try:
                embedded = await self._embed_batch(batch, kind)
            except HeadwaterError as error:
                # Batches that have not begun would probably fail as well.
                for text in chain(batch, *batches):
                    flights[text].set_exception(error)
                    flights[text].exception()  # it is not lost if no other call waits
                batches.clear()
                raise
            for text, embedding in embedded.items():
                flights[text].set_result(embedding)
            await self._cache.put(embedded, kind, drops)

    async def _embed_batch(self, batch: Sequence[str], kind: TextKind) -> dict[str, Embedding]:
        outcome, began = self._failed, time.perf_counter()
        try:
            embeddings = await self._model.embed(batch, kind)
            outcome = self._done
        finally:
            self._seconds.observe(time.perf_counter() - began)
            outcome.inc()
        self._texts.inc(len(batch))
        return dict(zip(batch, embeddings, strict=True))
