"""A LangChain retriever and a LangChain vector store, over indexes and declared retrievers."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from headwater.declarations.indexes import IndexRef, index_name
from headwater.errors import InvalidInputError, MissingExtraError
from headwater.errors.hints import nearest
from headwater.integrations.search import (
    AnyStore,
    FoundChunk,
    Searched,
    awaited,
    run,
    search,
    verbs_of,
)
from headwater.model.indexes import Document as NewDocument
from headwater.model.values import new_id

try:
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.documents import Document
    from langchain_core.embeddings import Embeddings
    from langchain_core.retrievers import BaseRetriever
    from langchain_core.vectorstores import VectorStore
    from pydantic import ConfigDict, Field, model_validator
except ImportError as error:
    raise MissingExtraError("the LangChain retriever", "langchain") from error

T = TypeVar("T")


class LangChainRetriever(BaseRetriever):
    """A LangChain retriever over an index or a declared retriever.

    ``store`` is a store or a client. ``arguments`` are options of ``store.search``, or arguments of
    the retriever for the parameters that do not take the query; those of a call replace them.
    ``search_kwargs`` is LangChain's name for them, and ``k`` its name for ``top_k``; the filters
    may be called ``filter``. ``metadata["source"]`` is the id of the document, unless its own
    metadata has a source; ``metadata["headwater"]`` is its provenance.

    >>> retriever = LangChainRetriever(store=store, search="docs", k=3)
    >>> documents = await retriever.ainvoke("When do I get my money back?", mode="hybrid")
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    store: AnyStore
    search: Searched
    k: int | None = None
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
        return run(self.store, self._documents(query, arguments))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **arguments: Any
    ) -> list[Document]:
        return await awaited(self.store, self._documents(query, arguments))

    async def _documents(self, query: str, arguments: dict[str, Any]) -> list[Document]:
        most = {} if self.k is None else {"k": self.k}
        given = (self.search_kwargs, most, self.arguments, arguments)
        chunks = await search(self.store, self.search, query, *given)
        return [_document(chunk) for chunk in chunks]


def _document(hit: FoundChunk) -> Document:
    chunk = hit.chunk
    source = {} if chunk.document is None else {"source": chunk.document}
    return Document(page_content=chunk.text, id=chunk.id, metadata=source | hit.metadata)


class HeadwaterVectorStore(VectorStore):
    """A LangChain vector store over an index of a store or of a client.

    Ids are those of documents. A search returns passages, each under the id of its document; one
    that is not longer than the index's ``chunk_tokens`` comes back as it was added. The options of
    a search are those of ``store.search``. Everything is done by the verbs of the store: documents
    have versions, limits of keys apply, and in a context a search is part of the lineage.

    >>> docs = HeadwaterVectorStore(store, "docs")
    >>> await docs.aadd_texts(["Returns are free."], [{"lang": "en"}], ids=["returns"])
    ['returns']
    >>> (document,) = await docs.asimilarity_search("free returns", k=1, filter={"lang": "en"})
    >>> document.id
    'returns'
    """

    def __init__(self, store: AnyStore, index: IndexRef) -> None:
        self._store = store
        self._index = index_name(index)

    def add_documents(
        self, documents: list[Document], *, ids: list[str] | None = None, **_: Any
    ) -> list[str]:
        """Add documents, in place of those with the same ids; return the ids."""
        return run(self._store, self._add(documents, ids))

    async def aadd_documents(
        self, documents: list[Document], *, ids: list[str] | None = None, **_: Any
    ) -> list[str]:
        """Add documents, in place of those with the same ids; return the ids."""
        return await self._await(self._add(documents, ids))

    def delete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Remove documents by their ids, or all documents without ids."""
        return run(self._store, self._delete(ids))

    async def adelete(self, ids: list[str] | None = None, **_: Any) -> bool:
        """Remove documents by their ids, or all documents without ids."""
        return await self._await(self._delete(ids))

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return whole documents; an id without one is left out."""
        return run(self._store, self._get(ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Return whole documents; an id without one is left out."""
        return await self._await(self._get(ids))

    def similarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the passages that match a query best."""
        return _unscored(self.similarity_search_with_score(query, k, **options))

    async def asimilarity_search(self, query: str, k: int = 4, **options: Any) -> list[Document]:
        """Return the passages that match a query best."""
        return _unscored(await self.asimilarity_search_with_score(query, k, **options))

    def similarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return the passages that match a query best, with the cosine of each."""
        return run(self._store, self._search(query, k, options))

    async def asimilarity_search_with_score(
        self, query: str, k: int = 4, **options: Any
    ) -> list[tuple[Document, float]]:
        """Return the passages that match a query best, with the cosine of each."""
        return await self._await(self._search(query, k, options))

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return passages that match a query and differ; the index chooses the candidates."""
        return self.similarity_search(query, k, diversity=1 - lambda_mult, **options)

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **options: Any
    ) -> list[Document]:
        """Return passages that match a query and differ; the index chooses the candidates."""
        return await self.asimilarity_search(query, k, diversity=1 - lambda_mult, **options)

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> HeadwaterVectorStore:
        """Return a vector store with texts, in the index that ``store=`` and ``index=`` name."""
        made = cls._made(embedding, **options)
        made.add_texts(texts, metadatas, ids=ids)
        return made

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings | None,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **options: Any,
    ) -> HeadwaterVectorStore:
        """Return a vector store with texts, in the index that ``store=`` and ``index=`` name."""
        made = cls._made(embedding, **options)
        await made.aadd_texts(texts, metadatas, ids=ids)
        return made

    @classmethod
    def _made(
        cls, embedding: Embeddings | None, *, store: AnyStore, index: IndexRef
    ) -> HeadwaterVectorStore:
        if embedding is not None:
            raise InvalidInputError(
                f"index {index_name(index)!r} embeds by its own embedder; pass None, and declare "
                "Index(…, embedder=embeddings.aembed_documents, dimensions=…) to use LangChain's"
            )
        return cls(store, index)

    def _select_relevance_score_fn(self) -> Any:
        # LangChain's relevance is from 0 to 1.
        return lambda cosine: min(1.0, max(0.0, cosine))

    async def _await(self, call: Coroutine[Any, Any, T]) -> T:
        return await awaited(self._store, call)

    async def _add(self, documents: Sequence[Document], ids: Sequence[str] | None) -> list[str]:
        given = [document.id for document in documents] if ids is None else ids
        if len(given) != len(documents):
            raise InvalidInputError(
                f"{len(documents)} documents have {len(given)} ids; pass one id for each"
            )
        used = [each or new_id() for each in given]
        added = [
            NewDocument(each, document.page_content, document.metadata)
            for each, document in zip(used, documents, strict=True)
        ]
        await verbs_of(self._store).indexes.load(self._index, added)
        return used

    async def _delete(self, ids: Sequence[str] | None) -> bool:
        verbs = verbs_of(self._store)
        if ids is None:
            await verbs.indexes.retain(self._index, [])
        for each in ids or ():
            await verbs.unindex(self._index, each)
        return True

    async def _get(self, ids: Sequence[str]) -> list[Document]:
        read = verbs_of(self._store).indexes.get_document
        stored = [await read(self._index, each) for each in dict.fromkeys(ids)]
        return [
            Document(id=each.document, page_content=each.text, metadata=dict(each.metadata))
            for each in stored
            if each is not None
        ]

    async def _search(
        self, query: str, k: int, options: dict[str, Any]
    ) -> list[tuple[Document, float]]:
        hits = await search(self._store, self._index, query, {"k": k, **options})
        chunks = [hit.chunk for hit in hits]
        return [
            (
                Document(id=each.document, page_content=each.text, metadata=dict(each.metadata)),
                each.score or 0.0,
            )
            for each in chunks
        ]


def _unscored(found: Sequence[tuple[Document, float]]) -> list[Document]:
    return [document for document, _ in found]
