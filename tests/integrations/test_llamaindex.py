"""The LlamaIndex retriever, in queries of LlamaIndex."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import MetadataMode

from headwater import FeatureStore
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.integrations.llamaindex import LlamaIndexRetriever
from tests.integrations.conftest import ARTICLES, SearchArticles

IndexArticles = Callable[[], Coroutine[Any, Any, None]]


@pytest.mark.both_environments
async def test_an_index_is_searched_and_nodes_say_where_they_come_from(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    searching = LlamaIndexRetriever(store, "articles", {"top_k": 1})
    (found,) = await searching.aretrieve("When is a refund paid?")
    node = found.node
    assert node.node_id.startswith("articles/refunds#")
    assert node.ref_doc_id == "refunds"
    assert found.score is not None
    assert 0 < found.score <= 1
    provenance = node.metadata["headwater"]
    assert (provenance["chunk"], provenance["document"]) == (node.node_id, "refunds")
    assert (provenance["score"], provenance["version"]) == (found.score, 1)
    before = provenance["index_version"]
    await store.unindex("articles", "delivery")
    (found,) = await searching.aretrieve("When is a refund paid?")
    assert found.node.metadata["headwater"]["index_version"] > before


async def test_models_see_the_metadata_of_the_document_and_not_its_provenance(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    (found,) = await LlamaIndexRetriever(store, "articles", {"top_k": 1}).aretrieve("refund")
    shown = found.node.get_content(MetadataMode.LLM)
    assert shown == f"lang: en\ntitle: Refunds\n\n{ARTICLES['refunds']}"


async def test_a_declared_retriever_gets_its_further_arguments(
    store: FeatureStore, index_articles: IndexArticles, search_articles: SearchArticles
) -> None:
    await index_articles()
    found = await LlamaIndexRetriever(store, search_articles).aretrieve("a refund")
    assert found[0].node.ref_doc_id == "refunds"
    assert len(found) == 2
    german = LlamaIndexRetriever(store, search_articles, {"lang": "de"})
    assert await german.aretrieve("refund") == []


def test_a_query_engine_without_async_code_can_use_it(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    store.sync.run(index_articles())
    searching = LlamaIndexRetriever(store, "articles", {"top_k": 1})
    echo = get_response_synthesizer(llm=MockLLM(), response_mode=ResponseMode.SIMPLE_SUMMARIZE)
    answer = RetrieverQueryEngine(searching, echo).query("Is there a refund?")
    assert ARTICLES["refunds"] in str(answer)
    assert "headwater" not in str(answer)
    assert [source.node.ref_doc_id for source in answer.source_nodes] == ["refunds"]
    store.sync.close()


async def test_options_have_the_names_of_llamaindex(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    searching = LlamaIndexRetriever(store, "articles", {"mode": "hybrid"}, similarity_top_k=2)
    assert len(await searching.aretrieve("a refund")) == 2
    named = LlamaIndexRetriever(store, "articles", {"similarity_top_k": 1})
    assert len(await named.aretrieve("a refund")) == 1
    with pytest.raises(InvalidInputError, match=r"unknown option 'topk' .* mean 'top_k'"):
        await LlamaIndexRetriever(store, "articles", {"topk": 1}).aretrieve("refund")


async def test_an_unknown_index_is_refused(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    with pytest.raises(UnknownNameError, match="did you mean 'articles'"):
        await LlamaIndexRetriever(store, "article").aretrieve("refund")
