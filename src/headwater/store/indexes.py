"""The verbs of a store for whole indexes, with those that read and load documents."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from headwater.core.blocking import blocking
from headwater.declarations.indexes import IndexRef
from headwater.features.call_scope import check_not_replaying, track_source
from headwater.features.caller_limits import check_index_limits
from headwater.model.indexes import StoredDocument
from headwater.store.verbs.indexes import IndexVerbs, SyncIndexVerbs

if TYPE_CHECKING:
    from headwater.model.indexes import Documents, LoadReport, OnLoaded


class StoreIndexes(IndexVerbs):
    """``store.indexes``: load, describe, rebuild and drop indexes."""

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


class SyncStoreIndexes(SyncIndexVerbs[StoreIndexes]):
    """``store.sync.indexes``."""

    get_document = blocking(StoreIndexes.get_document)
    load = blocking(StoreIndexes.load)
    retain = blocking(StoreIndexes.retain)
