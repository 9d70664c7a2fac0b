"""Batches of documents for bulk loads, whose memory does not grow with their number."""

from __future__ import annotations

import asyncio
import time
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
)
from functools import partial

import msgspec

from headwater.core.short_repr import short_repr
from headwater.errors import InvalidInputError
from headwater.model.indexes import Document

Documents = Iterable[Document] | AsyncIterable[Document]

_MAX_DOCUMENTS = 256
_FIRST_CHARACTERS = 50_000
_MIN_CHARACTERS = 12_500
_MAX_CHARACTERS = 400_000
"""Characters of a batch at most: enough for several full requests to a provider."""
_SHORT, _LONG = 2.0, 8.0
"""Seconds that a batch should take at least and at most."""


class LoadReport(msgspec.Struct, frozen=True):
    """How many documents a bulk load has written, how many chunks they have, and how many were
    left as they are.
    """

    documents: int = 0
    chunks: int = 0
    unchanged: int = 0

    def plus(self, other: LoadReport) -> LoadReport:
        """Return the sums of both reports."""
        return LoadReport(
            self.documents + other.documents,
            self.chunks + other.chunks,
            self.unchanged + other.unchanged,
        )

    __repr__ = short_repr("documents", "chunks", "unchanged")


OnLoaded = Callable[[LoadReport], None]
"""Called with the numbers so far."""


class _Batch:
    """Documents that are collected until they are enough to be embedded together."""

    def __init__(self, limit: int) -> None:
        self.documents: list[Document] = []
        self._limit = limit
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
        return len(self.documents) >= _MAX_DOCUMENTS or self._characters >= self._limit


async def batches(documents: Documents) -> AsyncIterator[list[Document]]:
    """Yield documents in batches whose size depends on how long the batch before took.

    So progress is shown, and an interruption loses little, with a slow embedder too. A plain
    iterator is read in a thread, as it may read files.
    """
    characters = _FIRST_CHARACTERS
    read: Callable[[int], Awaitable[list[Document]]]
    if isinstance(documents, AsyncIterable):
        read = partial(_next_async_batch, aiter(documents))
    else:
        read = partial(_next_batch, iter(documents))
    while batch := await read(characters):
        started = time.monotonic()
        yield batch
        characters = next_size(characters, time.monotonic() - started)


def next_size(characters: int, seconds: float) -> int:
    """Return the characters of the next batch, by the time that the last one took."""
    if seconds < _SHORT:
        return min(2 * characters, _MAX_CHARACTERS)
    return max(characters // 2, _MIN_CHARACTERS) if seconds > _LONG else characters


async def _next_async_batch(documents: AsyncIterator[Document], characters: int) -> list[Document]:
    batch = _Batch(characters)
    async for document in documents:
        if batch.add(document):
            break
    return batch.documents


async def _next_batch(documents: Iterator[Document], characters: int) -> list[Document]:
    return await asyncio.to_thread(_collected, documents, characters)


def _collected(documents: Iterator[Document], characters: int) -> list[Document]:
    batch = _Batch(characters)
    for document in documents:
        if batch.add(document):
            break
    return batch.documents
