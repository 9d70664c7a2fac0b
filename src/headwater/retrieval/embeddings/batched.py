"""Embedding any number of texts: each once, in batches, some at a time."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from itertools import chain

from headwater.errors import HeadwaterError
from headwater.ports import Embedding
from headwater.retrieval.embeddings.cached import EmbeddingCache
from headwater.retrieval.embeddings.embedder import EmbeddingModel, TextKind
from headwater.retrieval.embeddings.metrics import REQUESTS, SECONDS, TEXTS

_Flights = dict[str, "asyncio.Future[Embedding]"]


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
