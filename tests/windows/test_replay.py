"""Values of windows in history are those of the contributions that count at each moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.windows.plan import WindowPlan
from headwater.windows.replay import Contribution, values_at
from headwater.windows.state import evaluate, fold, new_state
from tests.windows.brute_force import Contribution as Plain
from tests.windows.brute_force import members_of, value_of
from tests.windows.test_state import START, histories, same

_moments = st.lists(st.integers(START - 400, START + 900), max_size=12).map(sorted)


@given(histories(), _moments, st.booleans(), st.integers(1, 3))
def test_each_moment_sees_what_had_happened_or_was_written_by_then(
    history: tuple[WindowPlan, list[Plain], list[int]], moments: list[int], known: bool, step: int
) -> None:
    plan, contributions, clock = history
    timed = [(now if known else one.at, one) for one, now in zip(contributions, clock, strict=True)]
    ordered = sorted(timed, key=lambda each: each[0])
    members = members_of(plan)[::step]
    found = values_at(
        plan.of_members(members),
        members,
        [Contribution(seen, one.at, one.written_at, one.value, one.key) for seen, one in ordered],
        moments,
    )
    for moment, values in zip(moments, found, strict=True):
        visible = [one for seen, one in timed if seen <= moment]
        for member, value in zip(members, values, strict=True):
            assert same(member, value, value_of(plan, member, visible, moment)), (member, moment)


@given(histories(), st.lists(st.integers(0, 300), max_size=6))
def test_what_was_known_is_what_the_state_online_gave(
    history: tuple[WindowPlan, list[Plain], list[int]], waits: list[int]
) -> None:
    plan, contributions, clock = history
    members, state = members_of(plan), new_state(plan, START)
    served, moments = [], []
    for (value, key, at, written_at), now in zip(contributions, clock, strict=True):
        fold(plan, state, value, key, at, written_at, now)
    last = clock[-1] if clock else START
    for wait in waits:
        last += wait
        moments.append(last)
        served.append(evaluate(plan, state, members, last))
    timed = [
        Contribution(now, at, written_at, value, key)
        for (value, key, at, written_at), now in zip(contributions, clock, strict=True)
    ]
    assert repr([*values_at(plan, members, timed, moments)]) == repr(served)
