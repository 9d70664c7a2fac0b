"""A LangChain retriever that searches an index or calls a declared retriever."""

from __future__ import annotations

from typing import Any

from headwater.errors import MissingExtraError
from headwater.integrations.search import FoundChunk, Searched, search
from headwater.store.feature_store import FeatureStore

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field
except ImportError as error:
    raise MissingExtraError("the LangChain retriever", "langchain") from error


class LangChainRetriever(BaseRetriever):
    """A LangChain retriever over an index or a declared retriever.

    ``arguments`` are options of ``store.search``, or arguments of the retriever, whose first other
    parameter takes the query; those of a call replace them. The provenance of a document is in
    ``metadata["headwater"]``.

    >>> retriever = LangChainRetriever(store=store, search="docs", arguments={"top_k": 3})
    >>> documents = await retriever.ainvoke("When do I get my money back?", mode="hybrid")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: FeatureStore
    search: Searched
    arguments: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **arguments: Any
    ) -> list[Document]:
        return self.store.sync.run(self._documents(query, arguments))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **arguments: Any
    ) -> list[Document]:
        return await self._documents(query, arguments)

    async def _documents(self, query: str, arguments: dict[str, Any]) -> list[Document]:
        found = await search(self.store, self.search, query, {**self.arguments, **arguments})
        return [_document(each) for each in found]


def _document(found: FoundChunk) -> Document:
    chunk = found.chunk
    return Document(page_content=chunk.text, id=chunk.id, metadata=found.metadata)
