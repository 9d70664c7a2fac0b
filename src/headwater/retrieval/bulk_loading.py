"""Batches of documents for bulk loads, whose memory does not grow with their number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator

import msgspec

from headwater.core.short_repr import short_repr
from headwater.declarations.indexes import Document
from headwater.errors import InvalidInputError

Documents = Iterable[Document] | AsyncIterable[Document]

# Enough texts for several full requests to a provider.
_MAX_DOCUMENTS = 256
_MAX_CHARACTERS = 400_000


class LoadReport(msgspec.Struct, frozen=True):
    """How many documents a bulk load has written, how many chunks they have, and how many were
    left as they are.
    """

    documents: int = 0
    chunks: int = 0
    unchanged: int = 0

    __repr__ = short_repr("documents", "chunks", "unchanged")


OnLoaded = Callable[[LoadReport], None]
"""Called with the numbers so far."""


class _Batch:
    """Documents that are collected until they are enough to be embedded together."""

    def __init__(self) -> None:
        self.documents: list[Document] = []
        self._characters = 0

    def add(self, document: Document) -> bool:
        """Add a document; return whether the batch is full."""
        if not isinstance(document, Document):
            raise InvalidInputError(
                f"load takes documents such as Document('returns', 'Returns are free.'), not a "
                f"{type(document).__name__}"
            )
        self.documents.append(document)
        self._characters += len(document.text) if isinstance(document.text, str) else 0
        return len(self.documents) >= _MAX_DOCUMENTS or self._characters >= _MAX_CHARACTERS


async def batches(documents: Documents) -> AsyncIterator[list[Document]]:
    """Yield documents in batches; a plain iterator is read in a thread, as it may read files."""
    if isinstance(documents, AsyncIterable):
        batch = _Batch()
        async for document in documents:
            if batch.add(document):
                yield batch.documents
                batch = _Batch()
        if batch.documents:
            yield batch.documents
        return
    iterator = iter(documents)
    while collected := await asyncio.to_thread(_next_batch, iterator):
        yield collected


def _next_batch(documents: Iterator[Document]) -> list[Document]:
    batch = _Batch()
    for document in documents:
        if batch.add(document):
            break
    return batch.documents
