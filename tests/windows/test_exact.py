"""Sums of floats have no error."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from headwater.windows import exact

floats = st.floats(allow_nan=False, allow_infinity=False)


def _exactly(total: exact.Exact) -> Fraction:
    return Fraction(exact.units([total]), 1 << exact.UNITS)


@given(st.lists(floats))
def test_a_sum_is_exact(values: list[float]) -> None:
    total: exact.Exact = []
    for value in values:
        total = exact.add(total, value)
    assert _exactly(total) == sum(map(Fraction, values))


@given(st.lists(floats))
def test_a_sum_of_squares_is_exact(values: list[float]) -> None:
    total: exact.Exact = []
    for value in values:
        total = exact.add_square(total, value)
    assert _exactly(total) == sum(Fraction(value) ** 2 for value in values)


@given(st.lists(st.lists(floats)))
def test_sums_of_parts_are_the_sum_of_all(parts: list[list[float]]) -> None:
    totals = []
    for part in parts:
        total: exact.Exact = []
        for value in part:
            total = exact.add(total, value)
        totals.append(total)
    everything = sum((Fraction(value) for part in parts for value in part), Fraction())
    assert _exactly(exact.join(totals)) == everything
    if abs(everything) < 2**1023:
        assert exact.rounded(totals) == float(everything)


@given(st.lists(floats))
def test_a_compact_sum_is_the_same_sum(values: list[float]) -> None:
    total: exact.Exact = []
    for value in values:
        total = exact.add(total, value)
    assert _exactly(exact.compact(total)) == _exactly(total)


@given(st.lists(st.floats(-1e9, 1e9)))
def test_a_compact_sum_of_usual_numbers_is_short(values: list[float]) -> None:
    total: exact.Exact = []
    for value in (round(value, 2) for value in values):
        total = exact.add(total, value)
    assert len(exact.compact(total)) <= 3
