"""Values of windows are those that all contributions together give, whatever their order."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.windows.plan import Member, WindowPlan, parse_aggregate, parse_window
from headwater.windows.sketches import PERCENTILE_ERROR
from headwater.windows.state import (
    WindowState,
    covers,
    decode_state,
    encode_state,
    evaluate,
    fold,
    new_state,
)
from tests.windows.brute_force import (
    SECOND,
    Contribution,
    members_of,
    plan_of,
    value_of,
    window,
)

NUMERIC = ["count", "rate", "sum", "avg", "stddev", "min", "max", "distinct", "p50", "p99"]
ORDERED = ["first", "last", "last(3)"]
WINDOWS = [window(60, 7), window(60, 20), window(200, 20), window(25, 25), window(1, 1)]
START = 1_000

floats = st.one_of(
    st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda value: round(value, 2)),
    st.sampled_from([0.0, -0.0, 0.1, 1e-300, 5e-324, -1e200, 1e200, 2.0**-480, 3.3]),
    st.integers(-5, 5).map(float),
)
ints = st.one_of(st.integers(-9, 9), st.integers(-(2**63), 2**63 - 1))
keys = st.sampled_from(["a", "b", "c", "d", "e", "other", "é", ""])
texts = st.text("abé", max_size=3)


@st.composite
def plans(draw: st.DrawFn) -> tuple[WindowPlan, st.SearchStrategy[Any]]:
    values, is_int, aggregates = draw(
        st.sampled_from(
            [
                (floats, False, NUMERIC + ORDERED),
                (ints, True, NUMERIC + ORDERED),
                (texts, False, ["count", "min", "max", "distinct", *ORDERED]),
            ]
        )
    )
    plan = plan_of(
        draw(st.lists(st.sampled_from(WINDOWS), min_size=1, max_size=4, unique=True)),
        draw(st.lists(st.sampled_from(aggregates), min_size=1, unique=True)),
        is_int=is_int,
        max_keys=draw(st.one_of(st.none(), st.integers(1, 4))),
    )
    return plan, values


@st.composite
def histories(
    draw: st.DrawFn,
) -> tuple[WindowPlan, list[Contribution], list[int]]:
    """Draw a plan, contributions in the order of their writing, and the clock at each of them."""
    plan, values = draw(plans())
    now = START
    contributions, clock = [], []
    for number in range(draw(st.integers(0, 40))):
        now += draw(st.one_of(st.integers(0, 9), st.sampled_from([0, 0, 40, 300])))
        at = now + draw(st.sampled_from([0, 0, 0, -1, -7, -20, -60, -230, -400, 5, 50]))
        key = draw(keys) if plan.is_keyed else None
        contributions.append(Contribution(draw(values), key, at, START + number))
        clock.append(now)
    return plan, contributions, clock


def folded(plan: WindowPlan, contributions: list[Contribution], clock: list[int]) -> WindowState:
    state = new_state(plan, clock[0] if clock else START)
    for (value, key, at, written_at), now in zip(contributions, clock, strict=True):
        fold(plan, state, value, key, at, written_at, now)
        again = decode_state(plan, encode_state(plan, state))
        assert again is not None
        assert encode_state(plan, again) == encode_state(plan, state)
        state = again
    return state


def same(member: Member, value: Any, expected: Any) -> bool:
    """Compare bit for bit, and a percentile within its error."""
    if isinstance(expected, dict):
        return value.keys() == expected.keys() and all(
            same(member, value[key], expected[key]) for key in expected
        )
    if member.aggregate.kind == "percentile" and expected is not None:
        return math.isclose(value, expected, rel_tol=PERCENTILE_ERROR, abs_tol=1e-323)
    return bool(value == expected) and (
        member.aggregate.kind == "rate" or type(value) is type(expected)
    )


@given(histories(), st.lists(st.integers(0, 500), max_size=3))
def test_values_at_later_and_later_moments_are_those_of_all_contributions(
    history: tuple[WindowPlan, list[Contribution], list[int]], waits: list[int]
) -> None:
    plan, contributions, clock = history
    state = folded(plan, contributions, clock)
    moment = clock[-1] if clock else START
    for wait in (0, *waits):
        moment += wait
        assert covers(plan, state, moment)
        members = members_of(plan)
        for member, value in zip(members, evaluate(plan, state, members, moment), strict=True):
            assert same(member, value, value_of(plan, member, contributions, moment)), member


@given(st.data(), histories())
def test_the_order_of_contributions_does_not_matter(
    data: st.DataObject, history: tuple[WindowPlan, list[Contribution], list[int]]
) -> None:
    plan, contributions, clock = history
    moment = clock[-1] if clock else START
    at_once = [moment] * len(clock)
    one = folded(plan, contributions, clock)
    other = folded(plan, data.draw(st.permutations(contributions)), at_once)
    members = members_of(plan)
    assert evaluate(plan, one, members, moment) == evaluate(plan, other, members, moment)


@given(histories(), st.integers(0, 400))
def test_a_read_by_a_clock_that_is_behind_is_right_or_not_covered(
    history: tuple[WindowPlan, list[Contribution], list[int]], behind: int
) -> None:
    plan, contributions, clock = history
    state = folded(plan, contributions, clock)
    moment = (clock[-1] if clock else START) - behind
    if covers(plan, state, moment):
        members = members_of(plan)
        for member, value in zip(members, evaluate(plan, state, members, moment), strict=True):
            assert same(member, value, value_of(plan, member, contributions, moment)), member
    else:
        assert behind > 1


@pytest.mark.parametrize("aggregate", NUMERIC + ORDERED)
def test_an_entity_without_contributions_has_empty_values(aggregate: str) -> None:
    plan = plan_of([window(60, 7)], [aggregate])
    expected = 0 if aggregate in ("count", "rate", "sum", "distinct") else None
    assert evaluate(plan, None, members_of(plan), START) == [expected]
    assert evaluate(plan, new_state(plan, START), members_of(plan), START) == [expected]
    keyed = plan_of([window(60, 7)], [aggregate], max_keys=3)
    assert evaluate(keyed, None, members_of(keyed), START) == [{}]


def test_values_fall_while_nothing_happens() -> None:
    plan = plan_of([window(60 * SECOND, SECOND)], ["count"])
    state = new_state(plan, 0)
    for second in range(10):
        fold(plan, state, 1.0, None, second * SECOND, second, second * SECOND)
    counts = [evaluate(plan, state, members_of(plan), t * SECOND)[0] for t in (9, 60, 65, 69, 70)]
    assert counts == [10, 10, 5, 1, 0]


def test_a_contribution_older_than_every_window_is_not_folded() -> None:
    plan = plan_of([window(60, 10), window(100, 20)], ["count", "last"])
    state = new_state(plan, 1_000)
    before = encode_state(plan, state)
    assert not fold(plan, state, 1.0, None, 800, 1, 1_000)
    assert encode_state(plan, state) == before
    assert fold(plan, state, 1.0, None, 900, 2, 1_000)
    assert evaluate(plan, state, members_of(plan), 1_000) == [0, None, 1, 1.0]


def test_a_state_of_another_plan_is_not_decoded() -> None:
    plan = plan_of([window(60, 10)], ["count"])
    text = encode_state(plan, new_state(plan, START))
    assert decode_state(plan_of([window(60, 20)], ["count"]), text) is None
    assert decode_state(plan_of([window(60, 10)], ["count", "sum"]), text) is None
    assert decode_state(plan, text) is not None


def test_a_sum_beyond_all_floats_is_the_largest_one_and_may_return() -> None:
    plan = plan_of([window(60, 10)], ["sum", "avg", "stddev"])
    state = new_state(plan, START)
    for number, value in enumerate([1e308, 1e308, 1e308]):
        fold(plan, state, value, None, START, number, START)
    assert evaluate(plan, state, members_of(plan), START) == [sys.float_info.max, 1e308, 0.0]
    for number, value in enumerate([-1e308, -1e308, -1e308, 0.1]):
        fold(plan, state, value, None, START + 10, number, START)
    total = plan.aggregates[0]
    assert evaluate(plan, state, [Member(plan.windows[0], total)], START) == [0.1]


def test_a_deviation_beyond_all_floats_is_the_largest_one() -> None:
    plan = plan_of([window(60, 10)], ["sum", "avg", "stddev"])
    state = new_state(plan, START)
    for number, value in enumerate([1.7e308, -1.7e308]):
        fold(plan, state, value, None, START, number, START)
    assert evaluate(plan, state, members_of(plan), START) == [0.0, 0.0, sys.float_info.max]


def test_a_fold_into_the_open_tile_copies_the_packed_ones() -> None:
    plan = plan_of([window(1_000, 10)], ["count", "sum"])
    state = new_state(plan, START)
    for number in range(50):
        fold(plan, state, 0.1, None, START + 10 * number, number, START + 10 * number)
    again = decode_state(plan, encode_state(plan, state))
    assert again is not None
    packed = again.levels[0].packed
    fold(plan, again, 0.1, None, START + 495, 50, START + 500)
    assert again.levels[0].packed is packed


def test_zeros_of_both_signs_are_one_value() -> None:
    plan = WindowPlan((parse_window("1h"),), (parse_aggregate("distinct"),))
    state = new_state(plan, 0)
    for value in (0.0, -0.0):
        fold(plan, state, value, None, 0, 0, 0)
    assert evaluate(plan, state, [Member(plan.windows[0], plan.aggregates[0])], 0) == [1]
