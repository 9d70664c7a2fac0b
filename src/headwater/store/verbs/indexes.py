"""Whole indexes: their status, building them again and dropping them."""

from __future__ import annotations

from typing import Annotated, TypeVar

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.indexes import IndexRef, index_name
from headwater.errors import UnknownNameError
from headwater.model.indexes import DroppedIndex, IndexList, IndexStatus, ReindexedIndex
from headwater.model.kinds import IndexName
from headwater.model.progress import OnStep
from headwater.store.verbs.verb import LONG_AT_ONCE, Sent, Verbs, verb

AnyIndex = Annotated[IndexRef, Sent(IndexName, index_name)]
# Inside the class, `list` is the verb.
Statuses = list[IndexStatus]


class IndexVerbs(Verbs):
    """``store.indexes``: describe, rebuild and drop indexes.

    Documents are loaded, retained and read by the store's own class and by the client's, which
    sends many requests for one call.
    """

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
    async def reindex(self, index: AnyIndex, *, progress: OnStep | None = None) -> int:
        """Split and embed all documents as the index is declared now; return how many were.

        Searches read the earlier contents until all documents are done. A call that was interrupted
        is continued by the next one. ``progress`` is called with the number of documents that are
        done and of all.

        >>> await store.indexes.reindex("docs")
        0
        """
        definition = self._runtime.registry.index(index)
        return await (await self._engine()).reindexer.reindex(definition, progress)

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


I_co = TypeVar("I_co", bound=IndexVerbs, covariant=True)


class SyncIndexVerbs(Blocking[I_co]):
    """The blocking form of what store and client share."""

    list = blocking(IndexVerbs.list)
    reindex = blocking(IndexVerbs.reindex)
    drop = blocking(IndexVerbs.drop)
