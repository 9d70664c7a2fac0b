"""A LlamaIndex retriever that searches an index or calls a declared retriever."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headwater.errors import MissingExtraError
from headwater.integrations.search import (
    PROVENANCE,
    AnyStore,
    FoundChunk,
    Searched,
    awaited,
    run,
    search,
)

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import (
        NodeRelationship,
        NodeWithScore,
        QueryBundle,
        RelatedNodeInfo,
        TextNode,
    )
except ImportError as error:
    raise MissingExtraError("the LlamaIndex retriever", "llamaindex") from error


class LlamaIndexRetriever(BaseRetriever):
    """A LlamaIndex retriever over an index or a declared retriever.

    ``arguments`` are options of ``store.search``, or arguments of the retriever for the parameters
    that do not take the query. ``similarity_top_k`` is LlamaIndex's name for ``top_k``. The
    provenance of a node is in ``metadata["headwater"]``, which models do not see.

    >>> retriever = LlamaIndexRetriever(store, "docs", similarity_top_k=3)
    >>> nodes = await retriever.aretrieve("When do I get my money back?")
    """

    def __init__(
        self,
        store: AnyStore,
        search: Searched,
        arguments: Mapping[str, Any] | None = None,
        *,
        similarity_top_k: int | None = None,
        callback_manager: CallbackManager | None = None,
    ) -> None:
        super().__init__(callback_manager)
        self._store = store
        self._search = search
        self._arguments = dict(arguments or {})
        if similarity_top_k is not None:
            self._arguments["similarity_top_k"] = similarity_top_k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return run(self._store, self._nodes(query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await awaited(self._store, self._nodes(query_bundle.query_str))

    async def _nodes(self, query: str) -> list[NodeWithScore]:
        chunks = await search(self._store, self._search, query, self._arguments)
        return [_node(chunk) for chunk in chunks]


def _node(hit: FoundChunk) -> NodeWithScore:
    chunk = hit.chunk
    node = TextNode(
        text=chunk.text,
        metadata=hit.metadata,
        excluded_llm_metadata_keys=[PROVENANCE],
        excluded_embed_metadata_keys=[PROVENANCE],
        **({} if chunk.id is None else {"id_": chunk.id}),
    )
    if chunk.document is not None:
        source = RelatedNodeInfo(node_id=chunk.document)
        node.relationships[NodeRelationship.SOURCE] = source
    return NodeWithScore(node=node, score=chunk.score)
