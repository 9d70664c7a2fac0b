"""Indexes: search them, read and change their documents, build them again and drop them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec

from headwater.core.blocking import Blocking, blocking
from headwater.core.progress import callback, with_bar
from headwater.declarations.indexes import IndexRef, index_name
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import Rerank, SearchOptions
from headwater.errors import (
    DurationError,
    EmbeddingError,
    IndexMismatchError,
    RerankFailedError,
    TooManyChunksError,
    UnknownDocumentError,
    UnknownNameError,
)
from headwater.model.indexes import (
    MAX_RESULTS,
    AsOf,
    Diversity,
    DocumentPage,
    DocumentPrefix,
    DocumentText,
    DroppedIndex,
    Filters,
    IndexedDocument,
    IndexList,
    IndexStatus,
    MinScore,
    Query,
    ReindexedIndex,
    SearchHit,
    SearchHits,
    SearchKind,
    StoredDocument,
    Text,
    TopK,
)
from headwater.model.kinds import Cursor, DocumentId, IndexName, Limit, Metadata
from headwater.model.problems import OnStep
from headwater.store.verbs.verb import LONG_AT_ONCE, Reply, Sent, Verbs, verb

if TYPE_CHECKING:
    from headwater.model.indexes import Documents, LoadReport, OnLoaded

AnyIndex = Annotated[IndexRef, Sent(IndexName, index_name)]
AnyDocument = Annotated[str | int, Sent(DocumentId, name="document")]
# Inside the class, `list` is the verb.
Statuses = list[IndexStatus]

_DOCUMENT = "/v1/index/{index}/{document}"
_EMBEDDING = (UnknownNameError, IndexMismatchError, DurationError, EmbeddingError)
_OF_DOCUMENTS = (UnknownNameError, UnknownDocumentError)

D = TypeVar("D", bound=IndexedDocument)


async def _stored(verbs: Verbs, kind: type[D], index: str, document_id: str) -> D:
    """Return the current version of a document; raise UnknownDocumentError without one."""
    definition = verbs._runtime.registry.index(index)  # noqa: SLF001 - of this module
    stored = await (await verbs._engine()).indexer.document(definition, document_id)  # noqa: SLF001
    if stored is None:
        raise UnknownDocumentError(index, document_id)
    return msgspec.convert({"index": index, **msgspec.structs.asdict(stored)}, kind)


async def _indexed(
    verbs: SearchVerbs, index: str, document_id: str, **document: Any
) -> IndexedDocument:
    await verbs.index(index, document_id, **document)
    return await _stored(verbs, IndexedDocument, index, document_id)


def _is_pending(document: IndexedDocument) -> bool:
    return document.status == "indexing"


async def _text(verbs: IndexVerbs, index: str, document_id: str) -> DocumentText:
    return await _stored(verbs, DocumentText, index, document_id)


async def _hits(
    verbs: SearchVerbs, index: str, query: str, as_of: str | None = None, **options: Any
) -> SearchHits:
    definition = verbs._runtime.registry.index(index)  # noqa: SLF001 - of this module
    searcher = (await verbs._engine()).searcher  # noqa: SLF001 - the same
    result = await searcher.run(definition, query, SearchOptions(**options), as_of)
    return SearchHits(
        index=index,
        version=None if result.version is None else result.version.text,
        chunks=[msgspec.convert(each, SearchHit, from_attributes=True) for each in result.chunks],
    )


def _moment(as_of: datetime | str) -> str:
    return as_of.isoformat() if isinstance(as_of, datetime) else as_of


def _chunks(hits: SearchHits) -> list[Chunk]:
    return [msgspec.convert(hit, Chunk, from_attributes=True) for hit in hits.chunks]


def _document(answer: DocumentText) -> StoredDocument:
    return msgspec.convert(answer, StoredDocument, from_attributes=True)


class SearchVerbs(Verbs):
    """The part of a store that indexes and searches documents."""

    @verb(
        "PUT",
        _DOCUMENT,
        scope="ingest",
        operation="index_document",
        changes="index",
        is_logged=False,
        reply=Reply(IndexedDocument, _indexed, lambda _: None, is_pending=_is_pending),
        raises=(*_EMBEDDING, TooManyChunksError),
        applies_limits=True,
        ends_with_client=True,
        local=("wait",),
    )
    async def index(
        self,
        index: AnyIndex,
        document_id: AnyDocument,
        text: Text,
        metadata: Annotated[Mapping[str, Any], Sent(Metadata, dict)] | None = {},
        *,
        wait: bool = True,
    ) -> None:
        """Index a document, in place of its earlier version; the next search finds it.

        Only chunks that are new are embedded. A server leaves a document with more than
        `indexes.background_chunks` of them to the workers: until its status is `ready`, searches
        find its earlier version.

        Args:
            wait: False to leave a large document to the workers, as a server does; not for clients.

        >>> await store.index("docs", "parcels", "Parcels arrive within 3 days.", {"lang": "en"})
        >>> [chunk.document for chunk in await store.search("docs", "When do parcels arrive?")]
        ['parcels']

        Inside a handler it is part of the handler's transaction: it counts if and when the event's
        values do, and the handler itself does not find it yet.
        """
        definition = self._runtime.registry.index(index)
        indexer = (await self._engine()).indexer
        await indexer.index(definition, document_id, text, metadata, wait=wait)

    @verb(
        "DELETE",
        _DOCUMENT,
        scope="ingest",
        operation="remove_document",
        changes="unindex",
        audits_itself=True,
        raises=_OF_DOCUMENTS,
        applies_limits=True,
    )
    async def unindex(self, index: AnyIndex, document_id: AnyDocument) -> None:
        """Remove a document and its chunks from an index, if it is there.

        >>> await store.unindex("docs", "parcels")
        >>> await store.search("docs", "When do parcels arrive?")
        []

        Inside a handler it is part of the handler's transaction, as `index`.
        """
        runtime = self._runtime
        definition = runtime.registry.index(index)
        if runtime.is_in_handler:
            await (await self._engine()).indexer.unindex(definition, document_id)
            return
        # The log cannot be redacted, and an id may be personal.
        digest = sha256(f"{document_id}".encode(errors="replace")).hexdigest()
        async with runtime.audited("unindex", definition.name, id_sha256=digest) as engine:
            await engine.indexer.unindex(definition, document_id)

    @verb(
        "POST",
        "/v1/search/{index}",
        scope="read",
        operation="search_index",
        reply=Reply(SearchHits, _hits, _chunks),
        raises=(*_EMBEDDING, RerankFailedError),
        applies_limits=True,
        most=MAX_RESULTS,
        local=("rerank",),
    )
    async def search(
        self,
        /,
        index: AnyIndex,
        query: Query,
        *,
        top_k: TopK = 5,
        mode: SearchKind = "vector",
        filters: Annotated[Mapping[str, Any], Sent(Filters, dict)] | None = None,
        min_score: MinScore | None = None,
        diversity: Diversity = 0.0,
        rerank: Rerank | None = None,
        as_of: Annotated[datetime | str, Sent(AsOf, _moment)] | None = None,
    ) -> list[Chunk]:
        """Search an index by meaning, by words or by both; the chunks that match best come first.

        Args:
            mode: by meaning (``vector``), by words (``text``), or by both (``hybrid``).
            filters: which metadata the chunks have, such as ``{"year": {"$gte": 2020}}``.
            min_score: the smallest cosine between the query and a chunk.
            diversity: from 0 to 1: how much chunks that resemble a better one are avoided.
            rerank: a function of the query and the candidates that returns these in another order,
                or one score for each; not for clients.
            as_of: a past moment whose contents are searched: a time, its text, a duration before
                now such as ``2h``, or a version as records show it.

        >>> (chunk,) = await store.search("docs", "When do parcels arrive?", top_k=1)
        >>> chunk.text
        'Parcels arrive within 3 days.'
        """
        options = SearchOptions(
            top_k=top_k,
            mode=mode,
            filters=filters,
            min_score=min_score,
            diversity=diversity,
            rerank=rerank,
        )
        definition = self._runtime.registry.index(index)
        return await (await self._engine()).retrievers.search(definition, query, options, as_of)


class IndexVerbs(Verbs):
    """``store.indexes``: load, describe, rebuild and drop indexes."""

    @verb(
        "GET",
        _DOCUMENT,
        scope="read",
        operation="read_document",
        reply=Reply(DocumentText, _text, _document, absent=UnknownDocumentError),
        raises=_OF_DOCUMENTS,
        applies_limits=True,
    )
    async def get_document(
        self, index: AnyIndex, document_id: AnyDocument
    ) -> StoredDocument | None:
        """Return the current version of a document.

        >>> (await store.indexes.get_document("docs", "parcels")).text
        'Parcels arrive within 3 days.'

        It is None if there is no such document.
        """
        definition = self._runtime.registry.index(index)
        return await (await self._engine()).indexer.document(definition, document_id)

    @verb(
        "POST",
        "/v1/indexes/{index}/list",
        scope="read",
        operation="list_documents",
        raises=(UnknownNameError,),
        applies_limits=True,
        most=MAX_RESULTS,
    )
    async def list_documents(
        self,
        index: AnyIndex,
        *,
        prefix: DocumentPrefix = "",
        filters: Annotated[Mapping[str, Any], Sent(Filters, dict)] | None = None,
        limit: Limit = 100,
        cursor: Cursor | None = None,
    ) -> DocumentPage:
        """Return the documents of an index, by id, without their texts.

        ``cursor`` is the ``next_cursor`` of the previous page. With filters, a page may have fewer
        documents than ``limit``, or none, although there is a ``next_cursor``: one call looks at
        ten thousand documents at most.

        Args:
            prefix: the beginning of the ids, such as ``handbook/``.
            filters: which metadata the documents have, as for a search.

        >>> page = await store.indexes.list_documents("docs", prefix="par")
        >>> [(each.document, each.version) for each in page.documents]
        [('parcels', 1)]
        """
        definition = self._runtime.registry.index(index)
        indexer = (await self._engine()).indexer
        return await indexer.listed(definition, prefix, filters, limit, cursor)

    @with_bar
    async def load(
        self, index: IndexRef, documents: Documents, *, progress: OnLoaded | bool | None = None
    ) -> LoadReport:
        """Index many documents, from an iterable or an async one, in large batches.

        A document that has not changed is left as it is, so a load that was interrupted is simply
        run again. ``progress`` is called with the numbers so far; with True, they are shown.

        >>> await store.indexes.load("docs", [Document("returns", "Returns are free.")])
        <LoadReport documents=1 chunks=1 unchanged=0>
        """
        definition = self._runtime.changed_index(index, "load")
        return await (await self._engine()).indexer.load(definition, documents, callback(progress))

    async def retain(self, index: IndexRef, document_ids: Collection[str | int]) -> int:
        """Remove all documents but these; return how many were removed.

        After a load of everything that there is, it removes the documents that are gone.

        >>> await store.indexes.retain("docs", ["returns"])
        1
        """
        runtime, retained = self._runtime, len(document_ids)
        definition = runtime.changed_index(index, "retain")
        async with runtime.audited("indexes.retain", definition.name, retained=retained) as engine:
            return await engine.indexer.retain(definition, document_ids)

    @verb(
        "GET",
        "/v1/indexes",
        scope="read",
        operation="list_indexes",
        answer=IndexList,
        applies_limits=True,
    )
    async def list(self) -> Statuses:
        """Return all indexes with their contents, by name.

        >>> await store.indexes.list()
        [<IndexStatus name='docs' documents=1 chunks=1 version='...'>]
        """
        return await (await self._engine()).reindexer.status()

    @verb(
        "POST",
        "/v1/indexes/{index}/reindex",
        scope="admin",
        operation="reindex",
        changes="indexes.reindex",
        target="index",
        answer=ReindexedIndex,
        is_long=True,
        at_once=LONG_AT_ONCE,
    )
    async def reindex(self, index: AnyIndex, *, progress: OnStep | bool | None = None) -> int:
        """Split and embed all documents as the index is declared now; return how many were.

        Searches read the earlier contents until all documents are done. A call that was interrupted
        is continued by the next one.

        Args:
            progress: called with the number of documents that are done and of all; True for a bar.

        >>> await store.indexes.reindex("docs")
        0
        """
        self._runtime.check_not_replaying("load")
        self._runtime.check_not_replaying("retain")
        definition = self._runtime.registry.index(index)
        return await (await self._engine()).reindexer.reindex(definition, callback(progress))

    @verb(
        "DELETE",
        "/v1/indexes/{index}",
        scope="admin",
        operation="drop_index",
        changes="indexes.drop",
        target="index",
        answer=DroppedIndex,
        raises=(UnknownNameError,),
    )
    async def drop(self, index: AnyIndex) -> int:
        """Remove an index with all its documents and past versions; return their number.

        An index that is no longer declared can be dropped, too.

        >>> await store.indexes.drop("docs")
        1
        """
        return await (await self._engine()).reindexer.drop(index_name(index))


class SyncIndexVerbs(Blocking[IndexVerbs]):
    """The blocking form of indexes."""

    get_document = blocking(IndexVerbs.get_document)
    list_documents = blocking(IndexVerbs.list_documents)
    load = blocking(IndexVerbs.load)
    retain = blocking(IndexVerbs.retain)
    list = blocking(IndexVerbs.list)
    reindex = blocking(IndexVerbs.reindex)
    drop = blocking(IndexVerbs.drop)
