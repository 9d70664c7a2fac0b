"""The LlamaIndex retriever, in queries of LlamaIndex."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from llama_index.core.callbacks import (
    CallbackManager,
    CBEventType,
    EventPayload,
    LlamaDebugHandler,
)
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.retrievers import BaseRetriever, QueryFusionRetriever
from llama_index.core.retrievers.fusion_retriever import FUSION_MODES
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.tools import RetrieverTool

from headwater import FeatureStore
from headwater.client import AsyncClient
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.http.app import create_app
from headwater.integrations.langchain import LangChainRetriever
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


# LlamaIndex publishes no suite for retrievers: its wheel has no tests, and its own integrations
# check the base class. What follows is its contract, through the parts of it that call retrievers.


def test_it_is_a_retriever_of_llamaindex() -> None:
    names = [base.__name__ for base in LlamaIndexRetriever.__mro__]
    assert BaseRetriever.__name__ in names


@pytest.mark.both_environments
@pytest.mark.parametrize("query", ["a refund", QueryBundle("a refund")])
async def test_it_takes_a_text_or_a_query_bundle(
    store: FeatureStore, index_articles: IndexArticles, query: str | QueryBundle
) -> None:
    await index_articles()
    found = await LlamaIndexRetriever(store, "articles", similarity_top_k=3).aretrieve(query)
    assert [type(each) for each in found] == [NodeWithScore] * 3
    scores = [each.get_score(raise_error=True) for each in found]
    assert scores == sorted(scores, reverse=True)


def test_blocking_code_finds_what_async_code_finds(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    store.sync.run(index_articles())
    searching = LlamaIndexRetriever(store, "articles", similarity_top_k=2)
    found = searching.retrieve("a refund")
    assert found == store.sync.run(searching.aretrieve("a refund"))
    store.sync.close()


async def test_a_query_engine_with_a_postprocessor_asks_it(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    engine = RetrieverQueryEngine.from_args(
        LlamaIndexRetriever(store, "articles", similarity_top_k=3),
        llm=MockLLM(),
        node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.1)],
    )
    answer = await engine.aquery("refund")
    assert [source.node.ref_doc_id for source in answer.source_nodes] == ["refunds"]


async def test_it_can_be_fused_with_another_one(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    both: list[BaseRetriever] = [
        LlamaIndexRetriever(store, "articles", {"mode": mode}, similarity_top_k=2)
        for mode in ("vector", "text")
    ]
    fused = QueryFusionRetriever(
        both, llm=MockLLM(), mode=FUSION_MODES.RECIPROCAL_RANK, num_queries=1, similarity_top_k=2
    )
    found = await fused.aretrieve("refund")
    assert found[0].node.ref_doc_id == "refunds"
    assert len({each.node.node_id for each in found}) == len(found)


async def test_a_tool_of_an_agent_can_call_it(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    tool = RetrieverTool.from_defaults(
        LlamaIndexRetriever(store, "articles", similarity_top_k=1), name="articles"
    )
    answer = await tool.acall("When is a refund paid?")
    assert ARTICLES["refunds"] in str(answer)


async def test_the_callbacks_of_a_query_see_the_search(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    watch = LlamaDebugHandler(print_trace_on_end=False)
    searching = LlamaIndexRetriever(
        store, "articles", similarity_top_k=1, callback_manager=CallbackManager([watch])
    )
    found = await searching.aretrieve("refund")
    ((_, end),) = watch.get_event_pairs(CBEventType.RETRIEVE)
    assert end.payload is not None
    assert end.payload[EventPayload.NODES] == found


async def test_a_client_is_searched_as_a_store_is(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    transport = httpx.ASGITransport(create_app(store))
    async with AsyncClient("http://localhost", transport=transport) as client:
        (found,) = await LlamaIndexRetriever(client, "articles", similarity_top_k=1).aretrieve(
            "refund"
        )
        assert found.node.ref_doc_id == "refunds"
        (document,) = await LangChainRetriever(store=client, search="articles", k=1).ainvoke(
            "refund"
        )
        assert document.page_content == ARTICLES["refunds"]
