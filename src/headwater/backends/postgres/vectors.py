"""Indexes of documents in Postgres."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headwater.backends.postgres.outbox_consumer import OutboxConsumer
from headwater.backends.postgres.pool import Postgres
from headwater.core.clock import Clock
from headwater.ports import (
    DocumentWrite,
    Embedding,
    Generation,
    Hits,
    IndexSpec,
    IndexVersion,
    StoredDocument,
    VectorQuery,
)


class PostgresVectorIndex:
    """Documents, chunks and embeddings in Postgres with pgvector."""

    def __init__(self, postgres: Postgres, consumer: OutboxConsumer, clock: Clock) -> None:
        self._postgres = postgres
        self._consumer = consumer
        self._clock = clock

    async def version(self, index: str) -> IndexVersion | None:
        raise NotImplementedError

    async def generations(self, index: str | None = None) -> list[Generation]:
        raise NotImplementedError

    async def create(self, index: str, spec: IndexSpec) -> Generation:
        raise NotImplementedError

    async def activate(self, index: str, generation: int) -> int:
        raise NotImplementedError

    async def write(self, writes: Sequence[DocumentWrite]) -> None:
        raise NotImplementedError

    async def embeddings(
        self, index: str, generation: int, content_hashes: Collection[str]
    ) -> dict[str, Embedding]:
        raise NotImplementedError

    async def document(self, index: str, document: str) -> StoredDocument | None:
        raise NotImplementedError

    async def outdated(
        self, index: str, generation: int, *, after: str, limit: int
    ) -> list[StoredDocument]:
        raise NotImplementedError

    async def nearest(self, query: VectorQuery) -> Hits:
        raise NotImplementedError

    async def matching(self, query: VectorQuery) -> Hits:
        raise NotImplementedError

    async def drop(self, index: str) -> int:
        raise NotImplementedError

    async def prune(self, index: str, before: int) -> int:
        raise NotImplementedError
