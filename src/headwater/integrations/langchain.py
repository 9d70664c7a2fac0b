"""A LangChain retriever that searches an index or calls a declared retriever."""

from __future__ import annotations

from typing import Any

from headwater.errors import InvalidInputError, MissingExtraError
from headwater.errors.hints import nearest
from headwater.integrations.search import FoundChunk, Searched, search
from headwater.store.feature_store import FeatureStore

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field, model_validator
except ImportError as error:
    raise MissingExtraError("the LangChain retriever", "langchain") from error


class LangChainRetriever(BaseRetriever):
    """A LangChain retriever over an index or a declared retriever.

    ``arguments`` are options of ``store.search``, or arguments of the retriever for the parameters
    that do not take the query; those of a call replace them. ``search_kwargs`` is LangChain's name
    for them, and options may be ``k`` and ``filter``. ``metadata["source"]`` is the id of the
    document, unless its own metadata has a source; ``metadata["headwater"]`` is its provenance.

    >>> retriever = LangChainRetriever(store=store, search="docs", search_kwargs={"k": 3})
    >>> documents = await retriever.ainvoke("When do I get my money back?", mode="hybrid")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: FeatureStore
    search: Searched
    arguments: dict[str, Any] = Field(default_factory=dict)
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _check_fields(cls, fields: dict[str, Any]) -> dict[str, Any]:
        # Pydantic would ignore an unknown field.
        for name in fields:
            if name not in cls.model_fields:
                raise InvalidInputError(
                    f"unknown field {name!r} of LangChainRetriever, whose options of a search are "
                    f'in search_kwargs={{"k": 3}}; {nearest(name, cls.model_fields)}'
                )
        return fields

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **arguments: Any
    ) -> list[Document]:
        return self.store.sync.run(self._documents(query, arguments))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **arguments: Any
    ) -> list[Document]:
        return await self._documents(query, arguments)

    async def _documents(self, query: str, arguments: dict[str, Any]) -> list[Document]:
        given = (self.search_kwargs, self.arguments, arguments)
        chunks = await search(self.store, self.search, query, *given)
        return [_document(chunk) for chunk in chunks]


def _document(hit: FoundChunk) -> Document:
    chunk = hit.chunk
    source = {} if chunk.document is None else {"source": chunk.document}
    return Document(page_content=chunk.text, id=chunk.id, metadata=source | hit.metadata)
