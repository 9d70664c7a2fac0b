"""Sketches merge exactly in any order, and their errors are within those that are stated."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.windows import sketches


def _distinct(values: list[Any]) -> str:
    seen = None
    for value in values:
        seen = sketches.add_distinct(seen, value)
    assert seen is not None
    return seen


def test_values_are_counted_exactly_up_to_128() -> None:
    for number in (1, 2, 127, 128):
        assert sketches.count_distinct([_distinct([*range(number), *range(number)])]) == number


def test_sets_of_several_tiles_are_counted_exactly_together() -> None:
    texts = [_distinct(list(range(start, start + 100))) for start in range(0, 1_000, 50)]
    assert sketches.count_distinct(texts) == 1_050


def test_values_of_different_types_are_different() -> None:
    assert sketches.count_distinct([_distinct([1, 1.0, "1", True, [1], {"1": 1}])]) == 6
    assert sketches.count_distinct([_distinct([{"a": 1, "b": 2}, {"b": 2, "a": 1}])]) == 1


@pytest.mark.parametrize("number", [129, 300, 1_000, 3_000, 20_000])
def test_more_values_are_estimated_within_three_standard_errors(number: int) -> None:
    errors = []
    for run in range(10):
        text = sketches.join_distinct(
            _distinct([f"{run}:{value}" for value in range(start, min(start + 100, number))])
            for start in range(0, number, 100)
        )
        errors.append(sketches.count_distinct([text]) / number - 1)
    assert max(map(abs, errors)) < 3 * sketches.DISTINCT_ERROR
    assert abs(sum(errors) / len(errors)) < 2 * sketches.DISTINCT_ERROR / math.sqrt(len(errors))


@given(st.lists(st.lists(st.integers(0, 400), min_size=1, max_size=300), min_size=1, max_size=5))
def test_the_text_of_different_values_depends_only_on_them(parts: list[list[int]]) -> None:
    values = [value for part in parts for value in part]
    shuffled = random.Random(1).sample(values, len(values))
    assert _distinct(values) == _distinct(shuffled)
    joined = sketches.join_distinct(_distinct(part) for part in parts)
    assert joined == _distinct(values)


def test_a_merge_of_estimates_is_the_estimate_of_all() -> None:
    parts = [[f"user {value}" for value in range(start, start + 400)] for start in (0, 200, 4_000)]
    everything = _distinct([value for part in parts for value in part])
    assert sketches.join_distinct(map(_distinct, parts)) == everything
    assert sketches.count_distinct(map(_distinct, parts)) == sketches.count_distinct([everything])


def _bins(values: list[float]) -> list[Any]:
    bins: list[Any] = []
    for value in values:
        sketches.add_to_bins(bins, value)
    return bins


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    st.integers(1, 99),
)
def test_a_percentile_is_within_1_percent(values: list[float], percent: int) -> None:
    expected = sorted(values)[-(-percent * len(values) // 100) - 1]
    found = sketches.percentile(_bins(values), percent)
    assert math.isclose(found, expected, rel_tol=sketches.PERCENTILE_ERROR, abs_tol=1e-320)


def _uniform(source: random.Random) -> float:
    return source.uniform(-10, 100)


def _heavy(source: random.Random) -> float:
    return source.paretovariate(0.7)


@pytest.mark.parametrize("draw", [_uniform, _heavy])
def test_percentiles_of_many_values_are_within_1_percent(
    draw: Callable[[random.Random], float],
) -> None:
    source = random.Random(7)
    values = [draw(source) for _ in range(5_000)]
    bins = sketches.join_bins([_bins(values[start::10]) for start in range(10)])
    assert bins == _bins(values)
    for percent in (1, 25, 50, 75, 95, 99):
        expected = sorted(values)[percent * 50 - 1]
        assert math.isclose(
            sketches.percentile(bins, percent), expected, rel_tol=sketches.PERCENTILE_ERROR
        )
