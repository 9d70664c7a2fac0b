"""Comparing paired scores: means, wins and losses, and whether chance explains them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nsmallest

import numpy as np

from headwater.model.evaluations import ScoreComparison, ScorePair

NAMED = 5
"""The contexts that a comparison names."""
_MOST_EXACT = 16
"""Differences of which all permutations are counted: 65,536."""
_SAMPLES = 20_000
_AT_ONCE = 4_000_000
"""Signs that are drawn at once; each takes a few bytes."""


def compare(name: str, pairs: Sequence[ScorePair]) -> ScoreComparison:
    """Return how a score differs over pairs, of which there is at least one."""
    differences = [pair.after - pair.before for pair in pairs]
    wins, losses = sum(each > 0 for each in differences), sum(each < 0 for each in differences)
    p_value, is_exact = permutation_test(differences)
    fallen = [pair for pair in pairs if pair.after < pair.before]
    return ScoreComparison(
        name=name,
        pairs=len(pairs),
        before=sum(pair.before for pair in pairs) / len(pairs),
        after=sum(pair.after for pair in pairs) / len(pairs),
        wins=wins,
        ties=len(pairs) - wins - losses,
        losses=losses,
        p_sign=sign_test(wins, losses),
        p_value=p_value,
        is_exact=is_exact,
        worst=tuple(
            nsmallest(NAMED, fallen, key=lambda pair: (pair.after - pair.before, pair.context_id))
        ),
    )


def sign_test(wins: int, losses: int) -> float:
    """Return how probable it is that fair coins fall at least as unevenly, to either side.

    >>> sign_test(1, 6)
    0.125
    """
    number = wins + losses
    term = total = 1
    for place in range(min(wins, losses)):
        term = term * (number - place) // (place + 1)
        total += term
    return min(1.0, 2 * total / (1 << number))


def permutation_test(differences: Sequence[float]) -> tuple[float, bool]:
    """Return how probable so large a mean is if every difference had its sign by chance.

    Of few differences all signs are counted, and the second value is True. Of many, a sample is
    drawn, always the same one.

    >>> permutation_test([1.0, 1.0, 2.0])
    (0.25, True)
    """
    values = np.array([each for each in differences if each], dtype=np.float64)
    number = len(values)
    # Sums of the same numbers in another order may differ in their last digits.
    observed = abs(values.sum()) - 1e-9 * np.abs(values).sum()
    if number <= _MOST_EXACT:
        bits = np.arange(2**number)[:, None] >> np.arange(number) & 1
        return float(np.mean(np.abs((2 * bits - 1) @ values) >= observed)), True
    random, rows, extreme = np.random.default_rng(7), max(1, _AT_ONCE // number), 0
    for begin in range(0, _SAMPLES, rows):
        drawn = random.integers(0, 2, (min(rows, _SAMPLES - begin), number), dtype=np.int8)
        sums = 2 * (drawn @ values) - values.sum()
        extreme += int(np.count_nonzero(np.abs(sums) >= observed))
    return (extreme + 1) / (_SAMPLES + 1), False
