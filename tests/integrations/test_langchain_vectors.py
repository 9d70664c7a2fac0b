"""The LangChain vector store: what its documents have of Headwater."""

from __future__ import annotations

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.indexing import InMemoryRecordManager, index

from headwater import ContextItem, FeatureStore, Index, context
from headwater.client import AsyncClient
from headwater.errors import CallerLimitError, InvalidInputError, UnknownNameError
from headwater.integrations.langchain import HeadwaterVectorStore
from headwater.model.callers import Caller, CallerLimits, set_caller

TEXTS = ["A refund is paid within a week.", "A parcel takes two days.", "A parcel may be insured."]
METADATA = [{"topic": "money"}, {"topic": "parcels"}, {"topic": "parcels"}]
IDS = ["refunds", "delivery", "insurance"]


@pytest.fixture
def vectors(store: FeatureStore) -> HeadwaterVectorStore:
    return HeadwaterVectorStore(store, Index(store, "documents", embedder="lexical"))


@pytest.mark.both_environments
async def test_a_search_has_filters_scores_and_diversity(vectors: HeadwaterVectorStore) -> None:
    assert await vectors.aadd_texts(TEXTS, METADATA, ids=IDS) == IDS
    query = "a refund for a parcel"
    found = await vectors.asimilarity_search(query, k=3, filter={"topic": "parcels"})
    assert {document.id for document in found} == {"delivery", "insurance"}
    scored = await vectors.asimilarity_search_with_score("a refund", k=3)
    scores = [score for _, score in scored]
    assert scored[0][0].id == "refunds"
    assert scores == sorted(scores, reverse=True)
    relevant = await vectors.asimilarity_search_with_relevance_scores(
        "a refund", k=3, score_threshold=scores[0] - 0.01
    )
    assert [document.id for document, _ in relevant] == ["refunds"]
    diverse = await vectors.amax_marginal_relevance_search("a parcel", k=2, lambda_mult=0.1)
    assert len({document.id for document in diverse}) == 2
    with pytest.raises(InvalidInputError, match="unknown option 'filtre'"):
        await vectors.asimilarity_search("parcel", filtre={})


@pytest.mark.both_environments
async def test_a_context_that_uses_its_retriever_has_lineage(
    store: FeatureStore, vectors: HeadwaterVectorStore
) -> None:
    await vectors.aadd_texts(TEXTS, METADATA, ids=IDS)
    searching = vectors.as_retriever(search_kwargs={"k": 1})

    @context(store)
    async def answer(question: str) -> list[ContextItem]:
        return [ContextItem(each.page_content) for each in await searching.ainvoke(question)]

    made = await answer("When is a refund paid?")
    (search,) = made.lineage.retrievers
    assert (search.count, made.content) == (1, TEXTS[0])
    assert len((await store.records.find(document="refunds")).contexts) == 1


@pytest.mark.both_environments
async def test_documents_have_versions_and_an_unchanged_one_keeps_its_version(
    store: FeatureStore, vectors: HeadwaterVectorStore
) -> None:
    async def version() -> int:
        stored = await store.indexes.get_document("documents", "refunds")
        assert stored is not None
        return stored.version

    await vectors.aadd_texts(TEXTS, METADATA, ids=IDS)
    await vectors.aadd_texts(TEXTS, METADATA, ids=IDS)
    assert await version() == 1
    await vectors.aadd_documents([Document("No refunds.", id="refunds")])
    assert await version() == 2
    await vectors.adelete()
    assert await vectors.aget_by_ids(IDS) == []


async def test_a_long_document_is_found_by_its_passages_and_read_as_a_whole(
    store: FeatureStore,
) -> None:
    vectors = HeadwaterVectorStore(
        store, Index(store, "documents", embedder="lexical", chunk_tokens=16, overlap=0)
    )
    text = " ".join(TEXTS * 4)
    await vectors.aadd_texts([text], ids=["terms"])
    found = await vectors.asimilarity_search("a refund", k=2)
    assert [each.id for each in found] == ["terms", "terms"]
    assert all(each.page_content in text and each.page_content != text for each in found)
    (whole,) = await vectors.aget_by_ids(["terms", "terms"])
    assert whole.page_content == text


async def test_limits_of_keys_apply(store: FeatureStore, vectors: HeadwaterVectorStore) -> None:
    limits = CallerLimits(tenant="acme-", indexes=frozenset({"documents"}))
    set_caller(Caller("acme", frozenset({"ingest", "read"}), limits))
    assert await vectors.aadd_texts(["Ours."], ids=["acme-1"]) == ["acme-1"]
    with pytest.raises(CallerLimitError):
        await vectors.aadd_texts(["Ours.", "Theirs."], ids=["acme-2", "bell-1"])
    with pytest.raises(CallerLimitError):
        await vectors.adelete(["bell-1"])
    assert await vectors.aget_by_ids(["acme-2"]) == []


def test_langchains_own_indexing_keeps_it_in_step_with_a_source(
    store: FeatureStore, vectors: HeadwaterVectorStore
) -> None:
    records = InMemoryRecordManager("documents")
    records.create_schema()
    documents = [Document(text, metadata={"source": text}) for text in TEXTS]

    def indexed(source: list[Document]) -> tuple[int, int, int]:
        done = index(
            source,
            records,
            vectors,
            cleanup="full",
            source_id_key="source",
            key_encoder="sha256",
        )
        return done["num_added"], done["num_skipped"], done["num_deleted"]

    assert indexed(documents) == (3, 0, 0)
    assert indexed(documents[:2]) == (0, 2, 1)
    assert len(vectors.similarity_search("a parcel", k=5)) == 2
    store.sync.close()


async def test_from_texts_uses_the_embedder_of_the_index(store: FeatureStore) -> None:
    Index(store, "documents", embedder="lexical")
    made = await HeadwaterVectorStore.afrom_texts(
        TEXTS, None, METADATA, ids=IDS, store=store, index="documents"
    )
    assert len(await made.aget_by_ids(IDS)) == 3
    with pytest.raises(InvalidInputError, match=r"embeds by its own embedder; pass None"):
        await HeadwaterVectorStore.afrom_texts(
            TEXTS, DeterministicFakeEmbedding(size=6), store=store, index="documents"
        )


async def test_misuse_is_refused_with_the_remedy(
    store: FeatureStore, vectors: HeadwaterVectorStore
) -> None:
    with pytest.raises(InvalidInputError, match="3 documents have 1 ids"):
        await vectors.aadd_documents([Document(text) for text in TEXTS], ids=["1"])
    with pytest.raises(UnknownNameError, match="did you mean 'documents'"):
        await HeadwaterVectorStore(store, "document").aadd_texts(TEXTS)
    with pytest.raises(InvalidInputError, match="await the verb"):
        vectors.similarity_search("a refund")
    async with AsyncClient("http://localhost") as client:
        of_client = HeadwaterVectorStore(client, "documents")
        with pytest.raises(InvalidInputError, match="cannot block; await the async method"):
            of_client.similarity_search("a refund")
