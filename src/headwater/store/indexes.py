"""The verbs of a store for whole indexes: bulk loads, status, reindexing and dropping."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.indexes import IndexRef, index_name
from headwater.engine.auditing import audited
from headwater.features.call_scope import check_not_replaying, track_source
from headwater.features.caller_limits import check_index_limits, limited_caller
from headwater.model.indexes import StoredDocument
from headwater.model.progress import OnStep
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.model.indexes import Documents, IndexStatus, LoadReport, OnLoaded


class IndexVerbs:
    """``store.indexes``: load, describe, rebuild and drop indexes."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def list(self) -> list[IndexStatus]:
        """Return all indexes with their contents, by name.

        >>> await store.indexes.list()
        [<IndexStatus name='docs' documents=1 chunks=1 version='...'>]
        """
        status = await (await self._runtime.open()).reindexer.status()
        limited = limited_caller()
        return (
            status
            if limited is None
            else [each for each in status if limited.may_search(each.name)]
        )

    async def get_document(self, index: IndexRef, document_id: str | int) -> StoredDocument | None:
        """Return the current version of a document; None if there is none.

        >>> (await store.indexes.get_document("docs", "parcels")).text
        'Parcels arrive within 3 days.'
        """
        definition = self._runtime.registry.index(index)
        check_index_limits(definition)
        track_source("document", definition.name, str(document_id))
        engine = await self._runtime.open()
        return await engine.indexer.document(definition, document_id)

    async def load(
        self, index: IndexRef, documents: Documents, *, progress: OnLoaded | None = None
    ) -> LoadReport:
        """Index many documents, from an iterable or an async one, in large batches.

        A document that has not changed is left as it is, so a load that was interrupted is simply
        run again. ``progress`` is called with the numbers so far.

        >>> await store.indexes.load("docs", [Document("returns", "Returns are free.")])
        <LoadReport documents=1 chunks=1 unchanged=0>
        """
        check_not_replaying("load")
        definition = self._runtime.registry.index(index)
        engine = await self._runtime.open()
        return await engine.indexer.load(definition, documents, progress)

    async def retain(self, index: IndexRef, document_ids: Collection[str | int]) -> int:
        """Remove all documents but these; return how many were removed.

        After a load of everything that there is, it removes the documents that are gone.

        >>> await store.indexes.retain("docs", ["returns"])
        1
        """
        check_not_replaying("retain")
        definition = self._runtime.registry.index(index)
        engine = await self._runtime.open()
        return await engine.indexer.retain(definition, document_ids)

    async def reindex(self, index: IndexRef, *, progress: OnStep | None = None) -> int:
        """Split and embed all documents as the index is declared now; return how many were.

        Searches read the earlier contents until all documents are done. A call that was interrupted
        is continued by the next one. ``progress`` is called with the number of documents that are
        done and of all.

        >>> await store.indexes.reindex("docs")
        0
        """
        check_not_replaying("reindex")
        definition = self._runtime.registry.index(index)
        engine = await self._runtime.open()
        async with audited(engine, "indexes.reindex", definition.name):
            return await engine.reindexer.reindex(definition, progress)

    async def drop(self, index: IndexRef) -> int:
        """Remove an index with all its documents and past versions; return their number.

        An index that is no longer declared can be dropped, too.

        >>> await store.indexes.drop("docs")
        1
        """
        check_not_replaying("drop")
        engine = await self._runtime.open()
        async with audited(engine, "indexes.drop", index_name(index)):
            return await engine.reindexer.drop(index_name(index))


class SyncIndexVerbs(Blocking[IndexVerbs]):
    """``store.sync.indexes``."""

    list = blocking(IndexVerbs.list)
    get_document = blocking(IndexVerbs.get_document)
    load = blocking(IndexVerbs.load)
    retain = blocking(IndexVerbs.retain)
    reindex = blocking(IndexVerbs.reindex)
    drop = blocking(IndexVerbs.drop)
