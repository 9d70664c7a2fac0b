"""The verbs of a client for indexes and their documents."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from headwater.api.admin import DroppedIndex
from headwater.api.indexes import (
    DocumentBody,
    DocumentText,
    IndexedDocument,
    IndexList,
    SearchBody,
    SearchHits,
)
from headwater.client.server import Server
from headwater.declarations import Chunk
from headwater.declarations.indexes import IndexRef, index_name
from headwater.declarations.search_options import SearchMode
from headwater.errors import UnknownDocumentError
from headwater.ports import StoredDocument
from headwater.retrieval.reindexing import IndexStatus

_DOCUMENT = "/v1/index/{}/{}"


class SearchCalls:
    """The part of a client that indexes and searches documents."""

    _server: Server

    async def index(
        self,
        index: IndexRef,
        document_id: str | int,
        text: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Index a document, in place of its earlier version; the next search finds it.

        >>> await client.index("docs", "parcels", "Parcels arrive within 3 days.", {"lang": "en"})
        """
        body = DocumentBody(text=text, metadata=dict(metadata or {}))
        await self._server.put(
            IndexedDocument, _DOCUMENT, index_name(index), document_id, body=body
        )

    async def unindex(self, index: IndexRef, document_id: str | int) -> None:
        """Remove a document from an index, if it is there.

        >>> await client.unindex("docs", "parcels")
        """
        await self._server.delete(_DOCUMENT, index_name(index), document_id)

    async def search(
        self,
        /,
        index: IndexRef,
        query: str,
        *,
        top_k: int = 5,
        mode: SearchMode = "vector",
        filters: Mapping[str, Any] | None = None,
        min_score: float | None = None,
        diversity: float = 0.0,
        as_of: datetime | str | None = None,
    ) -> list[Chunk]:
        """Return the chunks of an index that match a query best.

        The options are those of ``FeatureStore.search``, without ``rerank``, a function.

        >>> (chunk,) = await client.search("docs", "When do parcels arrive?", top_k=1)
        >>> chunk.text
        'Parcels arrive within 3 days.'
        """
        body = SearchBody(
            query=query,
            top_k=top_k,
            mode=mode,
            filters=None if filters is None else dict(filters),
            min_score=min_score,
            diversity=diversity,
            as_of=as_of.isoformat() if isinstance(as_of, datetime) else as_of,
        )
        found = await self._server.ask(SearchHits, "/v1/search/{}", index_name(index), body=body)
        return [msgspec.convert(hit, Chunk, from_attributes=True) for hit in found.chunks]


class IndexCalls:
    """``client.indexes``: describe indexes, and read their documents."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def list(self) -> list[IndexStatus]:
        """Return all indexes with their contents, by name.

        >>> await client.indexes.list()
        [<IndexStatus name='docs' documents=1 chunks=1 version='...'>]
        """
        return [*(await self._server.get(IndexList, "/v1/indexes")).indexes]

    async def get_document(self, index: IndexRef, document_id: str | int) -> StoredDocument | None:
        """Return the current version of a document; None if there is none.

        >>> (await client.indexes.get_document("docs", "parcels")).text
        'Parcels arrive within 3 days.'
        """
        try:
            found = await self._server.get(DocumentText, _DOCUMENT, index_name(index), document_id)
        except UnknownDocumentError:
            return None
        return msgspec.convert(found, StoredDocument, from_attributes=True)

    async def drop(self, index: IndexRef) -> int:
        """Remove an index with all its documents and past versions; return their number.

        >>> await client.indexes.drop("docs")
        1
        """
        path = "/v1/indexes/{}"
        return (await self._server.remove(DroppedIndex, path, index_name(index))).documents
