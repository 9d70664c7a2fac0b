"""Bodies of the routes that search indexes, and read and change documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.api.kinds import DocumentId, IndexName, Metadata, RetrieverName
from headwater.declarations.search_options import MAX_RESULTS, SearchMode
from headwater.retrieval.reindexing import IndexStatus

MOST_DOCUMENTS = 1_000

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


class SearchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A search of an index.

    ``as_of`` is a time with a time zone, a duration such as ``2h``, or a version of the index.
    """

    query: Query
    top_k: Annotated[
        int, Meta(ge=1, le=MAX_RESULTS, description="How many chunks at most.", examples=[3])
    ] = 5
    mode: Annotated[
        SearchMode, Meta(description="By meaning, by words, or by both.", examples=["vector"])
    ] = "vector"
    filters: Filters | None = None
    min_score: MinScore | None = None
    diversity: Diversity = 0.0
    as_of: AsOf | None = None


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


class DocumentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A document to index."""

    text: Annotated[str, Meta(examples=["Parcels take two days."])]
    metadata: Metadata = {}


class IndexedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The current version of a document."""

    index: IndexName
    document: DocumentId
    version: int
    indexed_at: datetime
    metadata: Mapping[str, Any]


class DocumentText(IndexedDocument, frozen=True, kw_only=True):
    """The current version of a document, with its text."""

    text: str


class NewDocument(DocumentBody, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A document to index, with its id."""

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
