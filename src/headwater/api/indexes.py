"""Bodies of the routes that search indexes, and read and change documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.declarations.search_options import MAX_RESULTS, SearchMode
from headwater.retrieval.reindexing import IndexStatus


class SearchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A search of an index.

    ``as_of`` is a time with a time zone, a duration such as ``2h``, or a version of the index.
    """

    query: str
    top_k: Annotated[int, Meta(ge=1, le=MAX_RESULTS)] = 5
    mode: SearchMode = "vector"
    filters: dict[str, Any] | None = None
    min_score: float | None = None
    diversity: float = 0.0
    as_of: str | None = None


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


class DocumentBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A document to index."""

    text: str
    metadata: dict[str, Any] = {}


class IndexedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The current version of a document."""

    index: str
    document: str
    version: int
    indexed_at: datetime
    metadata: Mapping[str, Any]


class DocumentText(IndexedDocument, frozen=True, kw_only=True):
    """The current version of a document, with its text."""

    text: str


class IndexList(msgspec.Struct, frozen=True):
    """All indexes, by name."""

    indexes: Sequence[IndexStatus]
