"""Searching an index: modes, filters, diversity, re-ranking, errors and the past."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from headwater import Chunk, Document, FeatureStore, Index
from headwater.declarations.interceptors import SearchResult
from headwater.declarations.retrievers import SearchOptions
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError, RerankFailedError
from headwater.ports import Hit
from headwater.retrieval.diversity import diversified
from headwater.retrieval.search import fuse, scaled
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.retrieval.support import (
    GIRAFFES,
    PARCELS,
    RETURNS,
    declare_docs,
    documents,
    index_all,
    texts,
)


async def run(store: FeatureStore, query: str, **options: Any) -> SearchResult:
    """Search the index and return the whole result."""
    engine = await runtime_of(store).open()
    as_of = options.pop("as_of", None)
    definition = engine.registry.index("docs")
    return await engine.searcher.run(definition, query, SearchOptions(**options), as_of)


async def test_an_index_without_documents_has_no_results(store: FeatureStore) -> None:
    declare_docs(store)
    for mode in ("vector", "text", "hybrid"):
        result = await run(store, "parcels", mode=mode)
        assert (result.version, result.chunks) == (None, [])


async def test_results_are_ordered_by_score(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    found = await store.search("docs", "parcels arrive within three days")
    scores = [chunk.score for chunk in found]
    assert documents(found)[0] == "parcels"
    assert len(found) == 3
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert documents(await store.search("docs", "giraffes", top_k=1)) == ["giraffes"]


async def test_a_search_by_words_finds_chunks_that_have_them(store: FeatureStore) -> None:
    words = declare_docs(store)
    await index_all(store)
    embedded = list(words.texts)
    assert documents(await store.search("docs", "GIRAFFE", mode="text")) == ["giraffes"]
    assert await store.search("docs", "elephants", mode="text") == []
    assert await store.search("docs", "!?", mode="text") == []
    assert words.texts == embedded  # no query was embedded


async def test_a_hybrid_search_ranks_highest_what_both_find(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    found = await store.search("docs", "giraffes", mode="hybrid")
    assert documents(found)[0] == "giraffes"
    assert len(found) == 3
    assert found[0].score == pytest.approx(2 / 61)
    assert documents(await store.search("docs", "?!", mode="hybrid", top_k=2)) != []


async def test_filters_choose_by_metadata_in_every_mode(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    for mode in ("vector", "text", "hybrid"):
        found = await run(store, "days of giraffes", mode=mode, filters={"year": {"$gte": 2021}})
        assert documents(found.chunks) == ["parcels"]
        found = await run(store, "days of giraffes", mode=mode, filters={"tags": "zoo"})
        assert documents(found.chunks) == ["giraffes"]


async def test_min_score_is_a_cosine_in_vector_and_hybrid_mode(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    (best, second, _) = await store.search("docs", "giraffes are tall animals")
    assert best.score == pytest.approx(1, abs=0.01)
    between = ((best.score or 0) + (second.score or 0)) / 2
    for mode in ("vector", "hybrid"):
        found = await run(store, "giraffes are tall animals", mode=mode, min_score=between)
        assert documents(found.chunks) == ["giraffes"]


async def test_diversity_prefers_chunks_that_differ(store: FeatureStore) -> None:
    declare_docs(store)
    for number in range(3):
        await store.index("docs", f"copy{number}", f"Parcels arrive within three days {number}")
    await store.index("docs", "other", "Parcels are brown boxes")
    query = "parcels arrive within three days"
    for mode in ("vector", "text", "hybrid"):
        plain = (await run(store, query, mode=mode, top_k=2)).chunks
        assert all(str(chunk.document).startswith("copy") for chunk in plain)
        diverse = (await run(store, query, mode=mode, top_k=2, diversity=0.7)).chunks
        assert documents(diverse)[0] == documents(plain)[0]
        assert documents(diverse)[1] == "other"


async def test_a_function_ranks_the_candidates_again(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)

    def by_length(query: str, chunks: Sequence[Chunk]) -> list[int]:
        assert query == "days"
        return [-len(chunk.text) for chunk in chunks]

    async def backwards(query: str, chunks: Sequence[Chunk]) -> list[Chunk]:
        await asyncio.sleep(0)
        return list(reversed(chunks))

    found = await store.search("docs", "days", top_k=2, rerank=by_length)
    assert documents(found)[0] == "giraffes"
    assert len(found) == 2
    assert [chunk.score for chunk in found] == [-len(chunk.text) for chunk in found]
    plain = await store.search("docs", "days", top_k=3)
    assert await store.search("docs", "days", top_k=3, rerank=backwards) == plain[::-1]
    first = await store.search("docs", "days", top_k=1, rerank=lambda _, chunks: chunks[:1])
    assert first == plain[:1]
    assert await store.search("docs", "days", rerank=lambda _, chunks: []) == []
    mixed = await store.search("docs", "days", top_k=2, rerank=backwards, diversity=0.5)
    assert documents(mixed)[0] == documents(plain)[-1]


async def test_a_function_that_ranks_too_long_is_ended(settings: Settings) -> None:
    async def never(query: str, chunks: Sequence[Chunk]) -> None:
        await asyncio.Event().wait()

    async with FeatureStore(settings=settings.replace(context={"timeout": 0.05})) as store:
        declare_docs(store)
        await store.index("docs", "parcels", PARCELS)
        with pytest.raises(RerankFailedError, match=r"'never' timed out after 0.05 s"):
            await store.search("docs", "days", rerank=never)


async def test_the_past_of_an_index_can_be_searched(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store)
    moments = [clock.now() - timedelta(seconds=1)]
    for text in (PARCELS, RETURNS, None):
        if text is None:
            await store.unindex("docs", "page")
        else:
            await store.index("docs", "page", text)
        clock.advance("1h")
        moments.append(clock.now())
        clock.advance("1h")
    for mode in ("vector", "text", "hybrid"):
        found = [(await run(store, "days", mode=mode, as_of=each)).chunks for each in moments]
        assert list(map(texts, found)) == [[], [PARCELS], [RETURNS], []]
    for then in (moments[1].isoformat(), "5h"):
        assert texts(await store.search("docs", "days", as_of=then)) == [PARCELS]
    assert await store.search("docs", "days") == []


async def test_a_version_of_an_index_can_be_searched_exactly(store: FeatureStore) -> None:
    declare_docs(store)
    versions: list[str] = []
    for text in (PARCELS, RETURNS, GIRAFFES):
        await store.index("docs", "page", text)
        version = (await run(store, "days")).version
        assert version is not None
        versions.append(version.text)
    assert len(set(versions)) == 3
    for version_text, text in zip(versions, (PARCELS, RETURNS, GIRAFFES), strict=True):
        result = await run(store, "days", as_of=version_text)
        assert texts(result.chunks) == [text]
        assert result.version is not None
        assert result.version.text == version_text


async def test_words_that_are_not_common_find_nothing(store: FeatureStore) -> None:
    Index(store, "docs", embedder="lexical")
    await index_all(store)
    assert documents(await store.search("docs", "giraffes")) == ["giraffes"]
    assert documents(await store.search("docs", "giraffes", mode="hybrid")) == ["giraffes"]
    assert await store.search("docs", "quux") == []
    assert len(await store.search("docs", "giraffes", min_score=-1)) == 3


async def test_versions_that_are_no_longer_kept_are_refused(
    store: FeatureStore, clock: ManualClock
) -> None:
    declare_docs(store, keep_versions="7d")
    await store.index("docs", "page", PARCELS)
    clock.advance("1h")
    then, before_all = clock.now(), clock.now() - timedelta(days=1)
    clock.advance("8d")
    # Nothing has changed since then, so that the past is the present.
    assert texts(await store.search("docs", "days", as_of=then)) == [PARCELS]
    await store.index("docs", "page", RETURNS)
    with pytest.raises(InvalidInputError, match="keeps replaced chunks for 7d; declare a longer"):
        await store.search("docs", "days", as_of=then)
    assert await store.search("docs", "days", as_of=before_all) == []


async def test_a_result_names_the_version_that_was_searched(store: FeatureStore) -> None:
    declare_docs(store)
    await index_all(store)
    engine = await runtime_of(store).open()
    for mode in ("vector", "text", "hybrid"):
        result = await run(store, "days", mode=mode, filters={"lang": "en"})
        assert result.version == await engine.backends.vectors.version("docs")
        assert (result.index, result.query, result.options.mode) == ("docs", "days", mode)
        assert result.options.filters == {"lang": "en"}


async def test_the_same_search_is_equal_for_many_candidates(store: FeatureStore) -> None:
    Index(store, "docs", embedder="lexical", dimensions=64)
    pages = [
        Document(number, f"Page {number} of parcels and {number % 7} days") for number in range(300)
    ]
    await store.indexes.load("docs", pages)
    found = await store.search("docs", "parcels", top_k=100, diversity=0.3)
    assert len({chunk.id for chunk in found}) == 100
    assert len(await store.search("docs", "parcels", top_k=1000)) == 300


def hit(chunk_id: str, score: float = 1.0) -> Hit:
    return Hit(
        id=chunk_id,
        document="d",
        position=0,
        text=chunk_id,
        content_hash="",
        metadata={},
        version=1,
        indexed_at=0,
        score=score,
    )


def test_ranks_are_fused_by_the_sum_of_their_reciprocals() -> None:
    fused = fuse([hit("a"), hit("b"), hit("c")], [hit("c"), hit("d")])
    assert [(each.id, round(each.score, 6)) for each in fused] == [
        ("c", round(1 / 63 + 1 / 61, 6)),
        ("a", round(1 / 61, 6)),
        ("b", round(1 / 62, 6)),
        ("d", round(1 / 62, 6)),
    ]
    assert fuse([], []) == []


def test_scores_are_scaled_to_the_best() -> None:
    assert scaled([]) == []
    assert scaled([3.0, 3.0]) == [1.0, 1.0]
    assert scaled([5.0, 4.0, 1.0]) == [1.0, 0.8, 0.2]


def test_without_diversity_only_relevance_counts() -> None:
    same = [(1.0).hex().encode()[:4]] * 3
    assert diversified([0.2, 0.9, 0.5], same, 3, 0.0) == [1, 2, 0]
    assert diversified([], [], 3, 0.5) == []
