"""Indexes: documents, searches, their results and the state of an index."""

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
    Mapping,
    Sequence,
)
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headwater.core.short_repr import short_repr
from headwater.core.tables import Tabular
from headwater.errors import InvalidInputError
from headwater.model.kinds import ROWS, DocumentId, IndexName, Metadata, RetrieverName

MOST_DOCUMENTS = 1_000
MAX_RESULTS = 1_000

SearchMode = Literal["vector", "text", "hybrid"]
TopK = Annotated[int, ROWS, Meta(ge=1, description="How many chunks at most.", examples=[3])]
SearchKind = Annotated[
    SearchMode,
    Meta(
        description="By meaning (vector), by words (text) or by both (hybrid).", examples=["vector"]
    ),
]
Text = Annotated[str, Meta(examples=["Parcels take two days."])]
Query = Annotated[
    str,
    Meta(
        description="What to search for.",
        examples=["How long do parcels take?"],
        extra_json_schema={"pattern": r"\S"},
    ),
]
Filters = Annotated[
    dict[str, Any],
    Meta(
        description="Conditions on metadata, such as equality, $gte, $in, $or and $not.",
        examples=[{"topic": "shipping"}],
    ),
]
DocumentPrefix = Annotated[
    str, Meta(description="The beginning of the ids of documents.", examples=["handbook/"])
]
MinScore = Annotated[
    float,
    Meta(
        description="The least cosine of a chunk; not with the mode text.",
        examples=[0.2],
        extra_json_schema={"minimum": -1, "maximum": 1},
    ),
]
Diversity = Annotated[
    float,
    Meta(
        description="From 0, only relevance counts, to 1.",
        examples=[0.3],
        extra_json_schema={"minimum": 0, "maximum": 1},
    ),
]
AsOf = Annotated[
    str,
    Meta(
        description="A time with a time zone, how long ago, or a version of the index.",
        examples=["2h"],
        extra_json_schema={"minLength": 1},
    ),
]


class SearchHit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found, and where it comes from."""

    id: str | None
    document: str | None
    position: int | None
    score: float | None
    text: str
    content_hash: str | None
    version: int | None
    indexed_at: datetime | None
    metadata: Mapping[str, Any]


class SearchHits(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks that were found, best first.

    ``version`` is the version of the index that was searched, or null if it had none.
    """

    index: str
    version: str | None
    chunks: Sequence[SearchHit]


class RetrieveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of a retriever."""

    params: Annotated[
        dict[str, Any],
        Meta(
            description="The arguments of the retriever's function, by name.",
            examples=[{"query": "How long do parcels take?"}],
        ),
    ] = {}


class RetrievedIndex(msgspec.Struct, frozen=True, kw_only=True):
    """The search of an index that a retriever stands for."""

    name: str
    version: str
    embedder: str | None
    mode: str
    query: str
    filters: Mapping[str, Any] | None


class Retrieved(msgspec.Struct, frozen=True, kw_only=True):
    """The chunks that a retriever found, best first, and how it found them.

    ``age_ms`` is the time since the oldest of the search and the values that it read, null if one
    of these has no moment; ``cached_at`` is the time of the search whose results were cached.
    ``index`` is null for a retriever with a function of its own. ``failed`` is true if the search
    failed and the retriever is declared with ``on_error="empty"``.
    """

    retriever: RetrieverName
    arguments: Mapping[str, Any]
    chunks: Sequence[SearchHit]
    searched_at: datetime
    age_ms: int | None
    sla_ms: int | None
    is_fresh: bool | None
    is_cached: bool
    cached_at: datetime | None
    latency_ms: float
    failed: bool
    index: RetrievedIndex | None


DocumentStatus = Literal["ready", "indexing"]
"""Whether searches find the current version of a document, or a worker has yet to embed it."""


class IndexedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The current version of a document, and whether searches find it already."""

    index: IndexName
    document: DocumentId
    version: int
    indexed_at: datetime
    metadata: Mapping[str, Any]
    status: DocumentStatus


class DocumentPage(msgspec.Struct, Tabular, frozen=True, kw_only=True):
    """Documents of an index, by id, without their texts; `next_cursor` is None on the last page."""

    index: IndexName
    documents: Sequence[IndexedDocument]
    next_cursor: str | None

    def rows(self) -> Sequence[IndexedDocument]:
        return self.documents

    def __repr__(self) -> str:
        more = "the last page" if self.next_cursor is None else "more follow"
        return f"<DocumentPage documents={len(self.documents)}, {more}>"


class DocumentText(IndexedDocument, frozen=True, kw_only=True):
    """The current version of a document, with its text."""

    text: str


class NewDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A document to index, with its id."""

    text: Text
    metadata: Metadata = {}
    id: DocumentId


class DocumentsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Documents to index."""

    documents: Annotated[
        Sequence[NewDocument],
        Meta(
            max_length=MOST_DOCUMENTS,
            description="Documents with their ids.",
            examples=[[{"id": "parcels", "text": "Parcels take two days."}]],
        ),
    ]


class ReindexedIndex(msgspec.Struct, frozen=True):
    """An index that was built again, and the number of documents that this took."""

    index: str
    documents: int


class RetainedIndex(msgspec.Struct, frozen=True):
    """An index, and the number of documents that were removed from it."""

    index: str
    removed: int


class IndexList(msgspec.Struct, frozen=True):
    """All indexes, by name."""

    indexes: Sequence[IndexStatus]


class DroppedIndex(msgspec.Struct, frozen=True):
    """An index that was dropped, and the number of documents that it had."""

    index: str
    documents: int


class IndexStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An index: its contents, how they were split and embedded, and how far a rebuild has come.

    ``version`` is None while nothing was indexed, ``declared_spec`` if the index is not declared or
    its embedder is not configured. ``building`` is the number of documents that the
    next generation has, and None if there is none.
    """

    name: str
    is_declared: bool
    version: str | None
    spec: IndexSpec | None
    declared_spec: IndexSpec | None
    documents: int
    chunks: int
    changed_at: datetime | None
    outdated: int
    building: int | None
    generations: Sequence[Generation]
    """All generations that are stored, oldest first."""

    __repr__ = short_repr("name", "documents", "chunks", "version")

    @property
    def needs_reindex(self) -> bool:
        """Whether the index was built in another way than it is declared."""
        return bool(self.differences)

    @property
    def differences(self) -> list[str]:
        """How the declaration differs, such as ``overlap: declared 0, built 40``."""
        if self.spec is None or self.declared_spec is None:
            return []
        return self.spec.differences(self.declared_spec)


class IndexSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How the documents of a generation are split and embedded."""

    embedder: str
    """The provider and the model, for example ``openai/text-embedding-3-small``."""
    dimensions: int
    chunk_tokens: int
    overlap: int

    def differences(self, declared: IndexSpec) -> list[str]:
        """Return how a declaration differs, such as ``overlap: declared 0, built 40``."""
        return [
            f"{name}: declared {expected}, built {built}"
            for name, built in msgspec.structs.asdict(self).items()
            if (expected := getattr(declared, name)) != built
        ]


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """A generation of an index, and how far it is built."""

    index: str
    number: int
    spec: IndexSpec
    state: Literal["building", "active", "retired"]
    created_at: datetime
    activated_at: datetime | None
    retired_at: datetime | None
    changed_at: datetime | None
    documents: int
    chunks: int
    outdated: int
    """Documents of the index that this generation has not, or has in an older version.

    A retired generation is not kept up to date: it has none.
    """

    __repr__ = short_repr("index", "number", "state", "documents", "chunks", "outdated")


class StoredDocument(msgspec.Struct, frozen=True):
    """The current version of a document.

    While its ``status`` is ``indexing``, searches find its earlier version, if there is one.
    """

    document: str
    text: str
    metadata: Mapping[str, Any]
    version: int
    indexed_at: datetime
    status: DocumentStatus


class Document(msgspec.Struct, frozen=True):
    """A text to index, under an id that is unique in its index.

    >>> Document("returns", "Returns are free for 30 days.", {"lang": "en"}).id
    'returns'
    """

    id: str | int
    text: str
    metadata: Mapping[str, Any] = {}


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

    @property
    def label(self) -> str:
        """What the numbers count."""
        return "documents"

    @property
    def done(self) -> int:
        """The documents that were examined."""
        return self.documents + self.unchanged

    @property
    def total(self) -> None:
        """The number of all documents, which is not known."""

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
