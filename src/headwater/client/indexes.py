"""The verbs of a client for indexes and their documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec

from headwater.client.server import Server
from headwater.core.codec import encode_custom
from headwater.declarations.indexes import IndexRef, index_name
from headwater.declarations.items import Chunk
from headwater.errors import UnknownDocumentError
from headwater.model.indexes import (
    Document,
    DocumentBody,
    Documents,
    DocumentsBody,
    DocumentText,
    IndexedDocument,
    LoadReport,
    NewDocument,
    OnLoaded,
    RetainedIndex,
    SearchBody,
    SearchHits,
    SearchMode,
    StoredDocument,
    batches,
)
from headwater.model.progress import NDJSON
from headwater.store.verbs.indexes import IndexVerbs

_DOCUMENT = "/v1/index/{}/{}"
# Half of the default limit of servers.
_BYTES_AT_ONCE = 500_000


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


class IndexCalls(IndexVerbs):
    """``client.indexes``: load, describe, rebuild and drop indexes."""

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._server = server

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

    async def load(
        self, index: IndexRef, documents: Documents, *, progress: OnLoaded | None = None
    ) -> LoadReport:
        """Index many documents, from an iterable or an async one, in large batches.

        A document that has not changed is left as it is, so a load that was interrupted is simply
        run again. ``progress`` is called with the numbers so far.

        >>> await client.indexes.load("docs", [Document("returns", "Returns are free.")])
        <LoadReport documents=1 chunks=1 unchanged=0>
        """
        name = index_name(index)
        total = await self._load(name, [])  # checks the name
        async for batch in batches(documents):
            for part in _requests([_new_document(each) for each in batch]):
                total = total.plus(await self._load(name, part))
                if progress is not None:
                    progress(total)
        return total

    async def _load(self, index: str, documents: Sequence[NewDocument]) -> LoadReport:
        path, body = "/v1/indexes/{}/documents", DocumentsBody(documents)
        return await self._server.follow(LoadReport, path, index, body=body, is_repeatable=True)

    async def retain(self, index: IndexRef, document_ids: Collection[str | int]) -> int:
        """Remove all documents but these; return how many were removed.

        >>> await client.indexes.retain("docs", ["returns"])
        1
        """
        with NamedTemporaryFile(prefix="headwater-", suffix=".ndjson") as file:
            for document_id in document_ids:
                file.write(msgspec.json.encode(str(document_id)) + b"\n")
            file.flush()
            kept = await self._server.upload(
                RetainedIndex,
                "/v1/indexes/{}/retain",
                index_name(index),
                file=Path(file.name),
                media_type=NDJSON,
            )
        return kept.removed


def _new_document(document: Document) -> NewDocument:
    return NewDocument(id=str(document.id), text=document.text, metadata=dict(document.metadata))


def _requests(documents: Sequence[NewDocument]) -> Iterator[Sequence[NewDocument]]:
    """Yield documents in parts that servers accept; one that is larger is sent alone."""
    middle = len(documents) // 2
    if middle and sum(map(_size, documents)) > _BYTES_AT_ONCE:
        yield from _requests(documents[:middle])
        yield from _requests(documents[middle:])
    else:
        yield documents


def _size(document: NewDocument) -> int:
    return len(msgspec.json.encode(document, enc_hook=encode_custom))
