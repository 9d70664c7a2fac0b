"""Paired scores: means, wins and losses, and the tests whether chance explains them."""

from __future__ import annotations

import math
from itertools import product

import pytest

from headwater.contexts.evaluation.significance import compare, permutation_test, sign_test
from headwater.model.evaluations import ScorePair


def pairs(*scores: tuple[float, float]) -> list[ScorePair]:
    return [
        ScorePair(score="helpful", context_id=f"ctx-{number}", before=before, after=after)
        for number, (before, after) in enumerate(scores)
    ]


def test_a_comparison_counts_wins_ties_and_losses_and_names_the_worst() -> None:
    found = compare("helpful", pairs((3, 4), (5, 5), (4, 1), (5, 4), (2, 3)))
    assert (found.pairs, found.wins, found.ties, found.losses) == (5, 2, 1, 2)
    assert (found.before, found.after) == (3.8, 3.4)
    assert found.difference == pytest.approx(-0.4)
    assert [pair.context_id for pair in found.worst] == ["ctx-2", "ctx-3"]


@pytest.mark.parametrize(("wins", "losses"), [(0, 0), (1, 0), (3, 3), (1, 9), (10, 2)])
def test_the_sign_test_is_exact(wins: int, losses: int) -> None:
    number = wins + losses
    tail = sum(math.comb(number, heads) for heads in range(min(wins, losses) + 1))
    assert sign_test(wins, losses) == min(1.0, 2 * tail / 2**number)
    assert sign_test(losses, wins) == sign_test(wins, losses)


def test_the_sign_test_of_many_pairs_is_exact_too() -> None:
    assert sign_test(10_000, 10_000) == 1.0
    assert 0.04 < sign_test(9_860, 10_140) < 0.05
    assert sign_test(0, 20_000) == 0.0


def test_the_permutation_test_of_few_differences_counts_all_signs() -> None:
    differences = [0.5, -0.1, 0.3, 0.2, -0.4, 0.7]
    observed = abs(math.fsum(differences))
    sums = [
        abs(math.fsum(sign * each for sign, each in zip(signs, differences, strict=True)))
        for signs in product((1, -1), repeat=6)
    ]
    extreme = sum(each >= observed - 1e-9 for each in sums)
    assert permutation_test([0.0, *differences]) == (extreme / 64, True)
    assert permutation_test([0.0, 0.0]) == (1.0, True)


def test_the_permutation_test_of_many_differences_draws_one_sample_always() -> None:
    noise = [(-1) ** number * (number % 7) for number in range(200)]
    chance, exact = permutation_test(noise)
    assert (chance > 0.5, exact) == (True, False)
    assert permutation_test(noise) == (chance, exact)
    worse, _ = permutation_test([each - 1 for each in noise])
    assert worse < 0.01


def test_of_yes_and_no_both_tests_agree() -> None:
    answers = [(1.0, 0.0)] * 9 + [(0.0, 1.0)] * 2 + [(1.0, 1.0)] * 4
    found = compare("safe", pairs(*answers))
    assert found.is_exact
    assert found.p_value == pytest.approx(found.p_sign)
