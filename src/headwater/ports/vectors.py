"""Indexes of documents: the types of documents, chunks and searches, and the store of them.

An index has documents, which have versions. A *generation* of an index is all its documents, split
and embedded in one way; searches read the active one. Changing the embedder or the chunks of an
index builds another generation, which replaces the active one when it is complete.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from headwater.model.indexes import Generation, IndexedDocument, IndexSpec, StoredDocument

Embedding: TypeAlias = bytes
"""A vector of unit length: its numbers as little-endian 32-bit floats."""

Scalar: TypeAlias = str | int | float | bool | None
Operator = Literal["eq", "in", "gt", "gte", "lt", "lte"]


NO_GENERATION = 0
"""The generation of a write without chunks: the document is outdated in all that there are."""


class IndexVersion(msgspec.Struct, frozen=True):
    """The contents of an index at one moment.

    ``changed_at`` is the time of the last change, in microseconds; of two changes of an index, the
    later one has the larger time. So equal versions have equal contents.
    """

    index: str
    generation: int
    spec: IndexSpec
    changed_at: int

    @property
    def text(self) -> str:
        """The version as records show it and as a search of the past takes it."""
        return f"{self.generation}.{self.changed_at}"


class IndexedChunk(msgspec.Struct, frozen=True):
    """A piece of a document, ready to be stored.

    ``terms`` are the words that text search finds it by, in their order and with repetitions.
    """

    id: str
    position: int
    text: str
    content_hash: str
    embedding: Embedding
    terms: Sequence[str]


class DocumentWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A new version of a document, complete with its chunks for one generation.

    Without ``text``, the document is removed. ``cause`` is the id of the event whose handler wrote
    it, or the verb. With ``version``, it is not a new version: it brings the generation up to that
    version of the document, which has this text and metadata.

    ``as_of`` is the time that it is about, in microseconds: that of the event, or None for that of
    the write. A document is as of the latest of its writes. With ``is_ordered``, a write that is
    about an earlier time than the document is discarded.
    """

    index: str
    document: str
    text: str | None
    metadata: Mapping[str, Any] = {}
    generation: int
    chunks: Sequence[IndexedChunk] = ()
    cause: str = "index"
    version: int | None = None
    as_of: int | None = None
    is_ordered: bool = False


class Compare(msgspec.Struct, frozen=True, tag=True):
    """A condition on one field of the metadata.

    A field that is missing, or has a value of another type, meets no condition. Numbers compare
    with numbers, texts by their code points; true and false are not numbers. ``eq`` and ``in`` also
    hold if the field is a list and one of its elements meets them.
    """

    field: str
    operator: Operator
    value: Scalar | Sequence[Scalar]


class AllOf(msgspec.Struct, frozen=True, tag=True):
    """All conditions hold; true if there are none."""

    conditions: Sequence[Filter]


class AnyOf(msgspec.Struct, frozen=True, tag=True):
    """At least one of the conditions holds; false if there are none."""

    conditions: Sequence[Filter]


class Not(msgspec.Struct, frozen=True, tag=True):
    """The condition does not hold."""

    condition: Filter


Filter: TypeAlias = Compare | AllOf | AnyOf | Not


class VectorQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A search of one generation, by an embedding or by words.

    ``as_of`` is a time in microseconds: the chunks that were current then are searched. None means
    the present. A search by words finds chunks that have at least ``min_terms`` of the different
    ``terms``.
    """

    index: str
    generation: int
    limit: int
    embedding: Embedding | None = None
    terms: Sequence[str] = ()
    min_terms: int = 1
    filters: Filter | None = None
    min_score: float | None = None
    as_of: int | None = None
    with_embeddings: bool = False


class Hit(msgspec.Struct, frozen=True):
    """A chunk that was found.

    ``version`` is the version of its document that brought it, ``indexed_at`` the time of that.
    """

    id: str
    document: str
    position: int
    text: str
    content_hash: str
    version: int
    indexed_at: int
    metadata: Mapping[str, Any]
    score: float
    embedding: Embedding | None = None


class Hits(msgspec.Struct, frozen=True):
    """The chunks that were found, best first, and the time of the last change that was searched.

    ``is_active`` is whether the generation was the active one at that moment.
    """

    changed_at: int
    hits: Sequence[Hit]
    is_active: bool


class VectorIndex(Protocol):
    """Documents, their chunks and the embeddings of these.

    A write that has returned, or whose batch was committed, is seen by every later search. All
    effects of one write are seen together: a search finds the chunks of one version of a document,
    never of two. Chunks that were replaced or removed stay readable with ``as_of`` until they are
    pruned.
    """

    async def version(self, index: str) -> IndexVersion | None:
        """Return the version of the active generation; None if the index was never created.

        It includes every write that was committed before the call.
        """

    async def generations(self, index: str | None = None) -> list[Generation]:
        """Return the generations of one index or of all, oldest first."""

    async def create(self, index: str, spec: IndexSpec) -> Generation:
        """Return the newest generation with this spec; create one if there is none.

        The first generation of an index is active at once. A later one is being built until
        `activate`. A retired one is never returned.
        """

    async def activate(self, index: str, generation: int) -> int:
        """Make a generation the active one if no document is outdated in it.

        Return the number of outdated documents: if it is not 0, nothing has changed.
        """

    async def write(self, writes: Sequence[DocumentWrite]) -> None:
        """Store versions of documents, all or none, in the given order.

        A document whose text, metadata and chunks are stored already is left as it is.
        A chunk with the id, position and metadata of a current one is kept. In other generations
        than that of the write, the document is outdated; in all, if that one is gone. A write to
        an index that was dropped is discarded, and so is one whose ``version`` is not the current
        version of the document, and one that ``is_ordered`` and about an earlier time than the
        document, also if that was written again with the same text, or removed.
        """

    async def embeddings(
        self, index: str, generation: int, content_hashes: Collection[str]
    ) -> dict[str, Embedding]:
        """Return the embeddings of the chunks that are known, by their content hash."""

    async def documents(self, index: str, documents: Collection[str]) -> dict[str, StoredDocument]:
        """Return the current versions of the documents that are there, by their ids.

        The status of one that is outdated in the active generation is ``indexing``.
        """

    async def list_documents(
        self, index: str, *, prefix: str = "", after: str, limit: int
    ) -> list[IndexedDocument]:
        """Return the next documents whose ids begin with a prefix, by id, without their texts.

        Ids are ordered by their code points. The status is that of `documents`.
        """

    async def outdated(
        self, index: str, generation: int, *, after: str, limit: int
    ) -> list[StoredDocument]:
        """Return the next documents, by id, that a generation has not in their current version."""

    async def nearest(self, query: VectorQuery) -> Hits:
        """Return the chunks whose embeddings are nearest to the query's; scores are cosines.

        Of equal scores, the smaller chunk id comes first.
        """

    async def matching(self, query: VectorQuery) -> Hits:
        """Return the chunks that have enough of the query's terms; scores are BM25.

        Of equal scores, the smaller chunk id comes first.
        """

    async def drop(self, index: str) -> int:
        """Remove an index with all its generations; return its number of documents."""

    async def prune(self, index: str, before: int) -> int:
        """Remove chunks and generations that were replaced before a time; return their number."""
