"""The judgements are consistent, and the measures are those of the literature."""

import math

import pytest

from tests.retrieval.quality.judgements import judge, passages, quality, queries


def test_ids_texts_and_queries_are_unique() -> None:
    assert len({passage.id for passage in passages()}) == len(passages())
    assert len({passage.text for passage in passages()}) == len(passages())
    assert len({query.query for query in queries()}) == len(queries())


def test_every_query_has_an_answer_among_the_passages() -> None:
    ids = {passage.id for passage in passages()}
    for query in queries():
        assert ids.issuperset(query.relevant), query.query
        assert 2 in query.relevant.values(), query.query


def test_an_ideal_ranking_has_the_best_measures() -> None:
    assert judge(["a", "b", "c"], {"a": 2, "b": 1}) == (1.0, 1.0, 1.0)


def test_ndcg_discounts_the_gain_by_the_rank() -> None:
    found = judge(["x", "b", "a"], {"a": 2, "b": 1})
    gain = 1 / math.log2(3) + 3 / math.log2(4)
    assert found.ndcg == pytest.approx(gain / (3 + 1 / math.log2(3)))
    assert found.recall == 1.0
    assert found.mrr == pytest.approx(1 / 3)


def test_results_after_the_tenth_do_not_count() -> None:
    assert judge(["x"] * 10 + ["a"], {"a": 2}) == (0.0, 0.0, 0.0)


def test_a_passage_that_helps_is_found_but_does_not_answer() -> None:
    found = judge(["b"], {"a": 2, "b": 1})
    assert (found.recall, found.mrr) == (0.5, 0.0)


def test_the_quality_of_a_kind_is_the_mean_over_its_queries() -> None:
    codes = [query for query in queries() if query.kind == "code"]
    rankings = [(query, list(query.relevant) if query is codes[0] else []) for query in queries()]
    assert quality(rankings, "code").recall == pytest.approx(1 / len(codes))
    assert quality(rankings, "keyword").recall == 0.0
