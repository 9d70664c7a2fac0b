"""Documents, searches and re-rankings that are refused, before a store of vectors sees them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headwater import Chunk, FeatureStore
from headwater.errors import InvalidInputError, RerankFailedError
from headwater.settings.schema import Settings
from tests.retrieval.support import PARCELS, declare_docs, index_all


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (("", "text"), "the id of a document is printable text of 1 to 1024 characters, not ''"),
        (("x" * 1025, "text"), "printable text of 1 to 1024 characters"),
        (("a\n", "text"), "printable text"),
        ((None, "text"), "a text or a whole number, not the NoneType None"),
        ((True, "text"), "a text or a whole number, not the bool True"),
        (("a", None), "the text of document 'a' is a text, not a NoneType; use unindex"),
        (("a", b"text"), "the text of document 'a' is a text, not a bytes"),
        (("a", "x\ud800"), "has a lone surrogate at character 1"),
        (("a", "x" * 1001), "has 1001 bytes, more than the maximum of 1000"),
        (("a", "ä" * 501), "has 1002 bytes, more than the maximum of 1000"),
        (("a", "text", "lang"), "the metadata of document 'a' is a mapping such as"),
        (("a", "text", {"n": float("nan")}), "the metadata of document 'a': 'n' is nan"),
        (("a", "text", {"n": 2**63}), "'n' is"),
        (("a", "text", {"day": object()}), "'day' is <object"),
        (("a", "text", {"deep": {"in": [1, {2}]}}), "'deep' is {2}, which JSON cannot hold"),
        (("a", "text", {5: "five"}), "the key 5 is not a text"),
        (("a", "text", {"$or": 1}), "the key '$or' is not a text, is empty or begins with '$'"),
        (("a", "text", {"n": "\ud800"}), "'n' has a lone surrogate"),
        (("a", "text", {"n": "x" * 100}), "has 108 bytes, more than the maximum of 100"),
    ],
)
async def test_an_invalid_document_is_refused_with_its_problem(
    settings: Settings, document: tuple[Any, ...], problem: str
) -> None:
    limits = {"max_document_bytes": 1000, "max_metadata_bytes": 100}
    async with FeatureStore(settings=settings.replace(indexes=limits)) as store:
        words = declare_docs(store)
        with pytest.raises(InvalidInputError) as refused:
            await store.index("docs", *document)
        assert problem in str(refused.value)
        assert not words.texts


@pytest.mark.parametrize(
    ("query", "options", "problem"),
    [
        ("", {}, "the query of a search is a text with words, not ''"),
        (" \n", {}, "is a text with words"),
        (None, {}, "is a text with words, not None"),
        ("x" * 100_001, {}, "has 100001 characters, more than the maximum of 100000"),
        ("\ud800", {}, "lone surrogate"),
        ("a", {"top_k": 0}, "top_k must be a whole number from 1 to 1000, not 0"),
        ("a", {"top_k": 1001}, "top_k must be a whole number from 1 to 1000, not 1001"),
        ("a", {"top_k": True}, "top_k must be a whole number"),
        ("a", {"mode": "vectors"}, "unknown mode 'vectors' of a search; did you mean 'vector'?"),
        ("a", {"min_score": 2}, "min_score is a cosine from -1 to 1, not 2"),
        ("a", {"mode": "text", "min_score": 0.5}, "which mode='text' does not compute"),
        ("a", {"diversity": 1.5}, "diversity must be a number from 0"),
        ("a", {"rerank": "best"}, "rerank must be a function of the query and the chunks"),
        ("a", {"filters": {"year": {"$gtee": 5}}}, "did you mean '$gte'?"),
        ("a", {"filter": {}}, "unknown option 'filter' of search; did you mean 'filters'?"),
        ("a", {"k": 3}, "unknown option 'k' of search; choose one of as_of, diversity, filters"),
        ("a", {"as_of": datetime(2020, 1, 1)}, "needs a time zone"),  # noqa: DTZ001
        ("a", {"as_of": datetime(9000, 1, 1, tzinfo=UTC)}, "is in the future"),
        ("a", {"as_of": "yesterday"}, "nor the version of an index as records show it"),
        ("a", {"as_of": "2026-01-31T12:00:00"}, "needs a time zone, as in '2026-01-31T12:00:00Z'"),
        ("a", {"as_of": "9999999d"}, "is neither a duration"),
        ("a", {"as_of": "1.9999999999999999"}, "as_of '1.9999999999999999' is in the future"),
        ("a", {"as_of": "7.1763260000000000"}, "no longer has its version of '7.1763260000000000'"),
    ],
)
async def test_an_invalid_search_is_refused_with_its_problem(
    store: FeatureStore, query: Any, options: dict[str, Any], problem: str
) -> None:
    declare_docs(store)
    await store.index("docs", "parcels", PARCELS)
    with pytest.raises(InvalidInputError) as refused:
        await store.search("docs", query, **options)
    assert problem in str(refused.value)


@pytest.mark.parametrize(
    ("rerank", "problem"),
    [
        (lambda query, chunks: 1 / 0, "'<lambda>' raised ZeroDivisionError"),
        (lambda query, chunks: None, "returned NoneType; it must return the chunks, best first"),
        (lambda query, chunks: [1.0], "returned 1 scores for 3 chunks"),
        (lambda query, chunks: ["a", "b", "c"], "returned 'a' as a score"),
        (lambda query, chunks: [float("nan")] * 3, "returned nan as a score"),
        (lambda query, chunks: [Chunk(text="new")], "returned a chunk that it was not given"),
        (lambda query, chunks: [chunks[0], chunks[0]], "or one twice"),
        (lambda query, chunks: [chunks[0], 1.0, 2.0], "as a score"),
    ],
)
async def test_a_function_that_ranks_badly_is_named(
    store: FeatureStore, rerank: Any, problem: str
) -> None:
    declare_docs(store)
    await index_all(store)
    with pytest.raises(RerankFailedError) as failed:
        await store.search("docs", "days", rerank=rerank)
    assert problem in str(failed.value)
    assert "index 'docs'" in str(failed.value)
