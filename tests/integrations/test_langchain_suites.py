"""LangChain's standard suites, run on our retriever and vector store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from langchain_core.vectorstores import VectorStore
from langchain_tests.integration_tests import (
    RetrieversIntegrationTests,
    VectorStoreIntegrationTests,
)
from langchain_tests.integration_tests.vectorstores import EMBEDDING_SIZE

from headwater import FeatureStore, Index
from headwater.client import Client
from headwater.http.app import create_app
from headwater.integrations.langchain import HeadwaterVectorStore, LangChainRetriever
from headwater.settings.schema import Settings
from tests.integrations.test_langchain import IndexArticles


@pytest.mark.both_environments
class TestRetriever(RetrieversIntegrationTests):
    """The retriever, over an index of three articles."""

    @pytest.fixture(autouse=True)
    def articles(self, store: FeatureStore, index_articles: IndexArticles) -> Iterator[None]:
        store.sync.run(index_articles())
        self._store = store
        yield
        store.sync.close()

    @property
    def retriever_constructor(self) -> type[LangChainRetriever]:
        return LangChainRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"store": self._store, "search": "articles"}

    @property
    def retriever_query_example(self) -> str:
        return "When is a refund paid?"


class VectorStoreSuite(VectorStoreIntegrationTests):
    """The suite, with an index that embeds as LangChain asks for."""

    def declare(self, store: FeatureStore) -> None:
        embed = self.get_embeddings().embed_documents
        Index(store, "documents", embedder=embed, dimensions=EMBEDDING_SIZE)


@pytest.mark.both_environments
class TestVectorStore(VectorStoreSuite):
    """The vector store, over an index of a store."""

    @pytest.fixture
    def vectorstore(self, store: FeatureStore) -> Iterator[VectorStore]:
        self.declare(store)
        yield HeadwaterVectorStore(store, "documents")
        store.sync.close()


class TestVectorStoreOfAClient(VectorStoreSuite):
    """The vector store, over a blocking client; async code uses it, too."""

    @pytest.fixture
    def vectorstore(self, store: FeatureStore) -> Iterator[VectorStore]:
        self.declare(store)
        transport = httpx.ASGITransport(create_app(store))
        with Client("http://localhost", settings=Settings(), transport=transport) as client:
            yield HeadwaterVectorStore(client, "documents")
            client.run(store.close())
