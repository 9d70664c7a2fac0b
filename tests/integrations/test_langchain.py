"""The LangChain retriever, in chains of LangChain."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough

from headwater import Chunk, ContextItem, FeatureStore, context, retriever
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.integrations.langchain import LangChainRetriever
from tests.integrations.conftest import ARTICLES, SearchArticles

IndexArticles = Callable[[], Coroutine[Any, Any, None]]


@pytest.mark.both_environments
async def test_an_index_is_searched_and_documents_say_where_they_come_from(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    searching = LangChainRetriever(store=store, search="articles", arguments={"top_k": 1})
    (found,) = await searching.ainvoke("When is a refund paid?")
    assert isinstance(found, Document)
    assert found.page_content == ARTICLES["refunds"]
    assert found.id is not None
    assert found.id.startswith("articles/refunds#")
    assert found.metadata["title"] == "Refunds"
    provenance = found.metadata["headwater"]
    assert (provenance["chunk"], provenance["document"]) == (found.id, "refunds")
    assert (provenance["position"], provenance["version"]) == (0, 1)
    assert 0 < provenance["score"] <= 1
    before = provenance["index_version"]
    await store.unindex("articles", "delivery")
    (found,) = await searching.ainvoke("When is a refund paid?")
    assert found.metadata["headwater"]["index_version"] > before


async def test_arguments_of_a_call_replace_those_of_the_retriever(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    searching = LangChainRetriever(store=store, search="articles", arguments={"top_k": 1})
    assert len(await searching.ainvoke("a refund", top_k=3)) == 3
    found = await searching.ainvoke("warranty", mode="text", filters={"lang": "en"})
    assert [each.metadata["headwater"]["document"] for each in found] == ["warranty"]
    assert await searching.ainvoke("warranty", filters={"lang": "de"}) == []


async def test_a_declared_retriever_gets_its_further_arguments(
    store: FeatureStore, index_articles: IndexArticles, search_articles: SearchArticles
) -> None:
    await index_articles()
    searching = LangChainRetriever(store=store, search=search_articles)
    found = await searching.ainvoke("a refund")
    assert len(found) == 2
    assert found[0].metadata["headwater"]["document"] == "refunds"
    assert found[0].metadata["headwater"]["index_version"]
    assert await searching.ainvoke("refund", lang="de") == []
    # From the cache, with the version of the index that was searched.
    assert await searching.ainvoke("a refund") == found


async def test_the_query_goes_to_the_parameter_that_the_retriever_searches_for(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    @retriever(store, index="articles", query="{question}", filters={"lang": "{lang}"}, top_k=1)
    def ask(lang: str, question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    await index_articles()
    searching = LangChainRetriever(store=store, search=ask, arguments={"lang": "en"})
    (found,) = await searching.ainvoke("refund")
    assert found.page_content == ARTICLES["refunds"]
    with pytest.raises(InvalidInputError, match="no parameter left for the query"):
        await searching.ainvoke("refund", question="parcel")
    with pytest.raises(
        InvalidInputError, match=r"'ask' has no parameter 'k', .* declaration; choose"
    ):
        await searching.ainvoke("refund", k=1)

    @retriever(store, index="articles", query="{question}", filters={"lang": "{lang}"}, top_k=1)
    def ask_in(lang: str = "en", question: str = "") -> list[Chunk]: ...  # type: ignore[empty-body]

    (found,) = await LangChainRetriever(store=store, search=ask_in).ainvoke("refund")
    assert found.page_content == ARTICLES["refunds"]

    @retriever(store)
    def echo(lang: str = "en", query: str = "") -> list[str]:
        return [f"{lang} {query}"]

    (found,) = await LangChainRetriever(store=store, search=echo).ainvoke("refund")
    assert (found.page_content, "source" in found.metadata) == ("en refund", False)


def test_a_chain_without_async_code_can_use_it(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    store.sync.run(index_articles())
    searching = LangChainRetriever(store=store, search="articles", arguments={"top_k": 1})
    prompt = ChatPromptTemplate.from_template("{found}\n{question}")

    def texts(documents: list[Document]) -> str:
        return "\n".join(document.page_content for document in documents)

    chain = {"found": searching | texts, "question": RunnablePassthrough()} | prompt
    text = chain.invoke("Is there a refund?").to_string()
    assert ARTICLES["refunds"] in text
    assert len(searching.batch(["refund", "parcel"])) == 2
    store.sync.close()


async def test_a_blocking_call_in_async_code_is_refused_with_the_remedy(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    searching = LangChainRetriever(store=store, search="articles")
    with pytest.raises(InvalidInputError, match="await"):
        searching.invoke("refund")


async def test_an_unknown_index_and_option_are_refused(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    with pytest.raises(UnknownNameError, match="did you mean 'articles'"):
        await LangChainRetriever(store=store, search="article").ainvoke("refund")
    with pytest.raises(InvalidInputError, match=r"unknown option 'topk' .* mean 'top_k'"):
        await LangChainRetriever(store=store, search="articles").ainvoke("refund", topk=3)
    with pytest.raises(InvalidInputError, match=r"field 'search_kwarg' .* mean 'search_kwargs'"):
        LangChainRetriever(store=store, search="articles", search_kwarg={})  # type: ignore[call-arg]


async def test_options_have_the_names_of_langchain(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    kwargs = {"k": 2, "filter": {"lang": "en"}}
    searching = LangChainRetriever(store=store, search="articles", search_kwargs=kwargs)
    assert len(await searching.ainvoke("a refund")) == 2
    assert len(await searching.ainvoke("a refund", top_k=3)) == 3
    assert await searching.ainvoke("refund", filter={"lang": "de"}) == []
    named = LangChainRetriever(
        store=store, search="articles", search_kwargs=kwargs, arguments={"top_k": 1}
    )
    assert len(await named.ainvoke("a refund")) == 1
    assert len(await named.ainvoke("a refund", k=3)) == 3


async def test_the_source_of_a_document_is_its_id_unless_it_has_one(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    await index_articles()
    await store.index("articles", "tea", "Tea is hot.", {"source": "https://tea.example"})
    searching = LangChainRetriever(store=store, search="articles", search_kwargs={"k": 1})
    assert (await searching.ainvoke("refund"))[0].metadata["source"] == "refunds"
    assert (await searching.ainvoke("hot tea"))[0].metadata["source"] == "https://tea.example"


async def test_the_callbacks_of_a_chain_see_the_search(
    store: FeatureStore, index_articles: IndexArticles
) -> None:
    class Watch(BaseCallbackHandler):
        def __init__(self) -> None:
            self.found: list[Document] = []

        def on_retriever_end(self, documents: Any, **_: Any) -> None:
            self.found += documents

    await index_articles()
    watch = Watch()
    searching = LangChainRetriever(store=store, search="articles")
    found = await searching.ainvoke("refund", config={"callbacks": [watch]})
    assert watch.found == found


async def test_a_search_inside_a_context_is_part_of_its_lineage(
    store: FeatureStore, index_articles: IndexArticles, search_articles: SearchArticles
) -> None:
    await index_articles()
    searching = LangChainRetriever(store=store, search=search_articles)

    @context(store)
    async def answer(question: str) -> list[ContextItem]:
        return [ContextItem(each.page_content) for each in await searching.ainvoke(question)]

    made = await answer("a refund")
    (search,) = made.lineage.retrievers
    assert (search.retriever, search.count) == ("search_articles", 2)
    assert len((await store.records.find(document="refunds")).contexts) == 1
