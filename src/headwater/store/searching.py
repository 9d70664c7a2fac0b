"""The verbs of a store for the documents of an index: index, unindex and search."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Never

from headwater.declarations.indexes import IndexRef
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import Rerank, SearchOptions
from headwater.errors import InvalidInputError
from headwater.errors.hints import nearest
from headwater.features.call_scope import check_allowed_in_handler, check_not_replaying
from headwater.features.caller_limits import check_document_limits, check_index_limits
from headwater.model.indexes import SearchMode
from headwater.store.runtime import Runtime

_OPTIONS = (*SearchOptions.__struct_fields__, "as_of")


class SearchVerbs:
    """The part of ``FeatureStore`` that indexes and searches documents."""

    _runtime: Runtime

    async def index(
        self,
        index: IndexRef,
        document_id: str | int,
        text: str,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Index a document, in place of its earlier version; the next search finds it.

        Only chunks that are new are embedded. Inside a handler it is part of the handler's
        transaction: it counts if and when the event's values do, and the handler itself does not
        find it yet.

        >>> await store.index("docs", "parcels", "Parcels arrive within 3 days.", {"lang": "en"})
        >>> [chunk.document for chunk in await store.search("docs", "When do parcels arrive?")]
        ['parcels']
        """
        check_not_replaying("index")
        definition = self._runtime.registry.index(index)
        check_document_limits(definition, document_id)
        engine = self._runtime.current() or await self._runtime.open()
        document = engine.indexer.checked(document_id, text, metadata)
        await engine.indexer.index(definition, document)

    async def unindex(self, index: IndexRef, document_id: str | int) -> None:
        """Remove a document from an index, if it is there; inside a handler like `index`.

        >>> await store.unindex("docs", "parcels")
        >>> await store.search("docs", "When do parcels arrive?")
        []
        """
        check_not_replaying("unindex")
        definition = self._runtime.registry.index(index)
        check_document_limits(definition, document_id)
        engine = self._runtime.current() or await self._runtime.open()
        await engine.indexer.unindex(definition, document_id)

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
        rerank: Rerank | None = None,
        as_of: datetime | str | None = None,
        **unknown: Never,
    ) -> list[Chunk]:
        """Return the chunks of an index that match a query best.

        Args:
            mode: by meaning (``vector``), by words (``text``), or by both (``hybrid``).
            filters: which metadata the chunks have, such as ``{"year": {"$gte": 2020}}``.
            min_score: the smallest cosine between the query and a chunk.
            diversity: from 0 to 1: how much chunks that resemble a better one are avoided.
            rerank: a function of the query and the candidates that returns these in another order,
                or one score for each.
            as_of: a past moment whose contents are searched: a time, its text, a duration before
                now such as ``2h``, or a version as records show it.

        >>> (chunk,) = await store.search("docs", "When do parcels arrive?", top_k=1)
        >>> chunk.text
        'Parcels arrive within 3 days.'
        """
        check_allowed_in_handler("search")
        for option in unknown:
            hint = nearest(option, _OPTIONS)
            raise InvalidInputError(f"unknown option {option!r} of a search; {hint}")
        definition = self._runtime.registry.index(index)
        check_index_limits(definition)
        options = SearchOptions(
            top_k=top_k,
            mode=mode,
            filters=filters,
            min_score=min_score,
            diversity=diversity,
            rerank=rerank,
        )
        engine = self._runtime.current() or await self._runtime.open()
        return await engine.retrievers.search(definition, query, options, as_of)
