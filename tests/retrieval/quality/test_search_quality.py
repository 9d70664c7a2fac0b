"""Searches rank the passages of a help centre well.

The bounds leave some room below the measured values, which `make bench` prints.
"""

import pytest

from headwater import FeatureStore
from headwater.testing import temporary
from tests.retrieval.quality.help_centre import METHODS, Method, declare, fill, rankings
from tests.retrieval.quality.judgements import Kind, Quality, Rankings, quality

KINDS_TO_MERGE: tuple[Kind, ...] = ("question", "paraphrase", "confusable", "message", "language")
KINDS_OF_WORDS: tuple[Kind, ...] = ("keyword", "code")


class Measured:
    """The rankings of all methods."""

    def __init__(self, of_methods: dict[Method, Rankings]) -> None:
        self._of_methods = of_methods

    def of(self, method: Method) -> Quality:
        return quality(self._of_methods[method])

    def ndcg(self, method: Method, kind: Kind | None = None) -> float:
        return quality(self._of_methods[method], kind).ndcg

    def best(self, kind: Kind) -> float:
        return max(self.ndcg("text", kind), self.ndcg("vector", kind))


# One test, because embedding the passages takes most of the time.
@pytest.mark.timeout(900)
async def test_searches_find_the_passages_that_answer() -> None:
    store = FeatureStore()
    declare(store)
    async with temporary(store):
        await fill(store)
        measured = Measured({method: await rankings(store, method) for method in METHODS})
    check_all_rankings(measured)
    check_meaning_and_words(measured)
    check_fusion(measured)


def check_all_rankings(measured: Measured) -> None:
    bounds: dict[Method, float] = {"fallback": 0.47, "text": 0.59, "vector": 0.75, "hybrid": 0.77}
    for method, least in bounds.items():
        found = measured.of(method)
        assert found.ndcg >= least, method
        assert found.recall >= least, method
        assert found.mrr >= least - 0.02, method
        assert measured.ndcg(method, "language") >= 0.8, method


def check_meaning_and_words(measured: Measured) -> None:
    """Searches by meaning find paraphrases; searches by words find codes."""
    assert measured.ndcg("vector") >= measured.ndcg("text") + 0.1
    assert measured.ndcg("vector", "paraphrase") >= 2 * measured.ndcg("text", "paraphrase")
    assert measured.ndcg("vector", "message") >= measured.ndcg("text", "message") + 0.2
    assert measured.ndcg("text", "code") >= 0.93
    assert measured.ndcg("text", "code") > measured.ndcg("vector", "code")
    assert measured.ndcg("fallback", "code") >= 0.88
    assert measured.ndcg("fallback", "keyword") >= 0.65


def check_fusion(measured: Measured) -> None:
    """Hybrid search is about as good as the better of both, for every kind of query."""
    assert measured.ndcg("hybrid") >= measured.ndcg("vector")
    for kind in KINDS_OF_WORDS:
        assert measured.ndcg("hybrid", kind) >= measured.best(kind), kind
    for kind in KINDS_TO_MERGE:
        assert measured.ndcg("hybrid", kind) >= measured.best(kind) - 0.03, kind
