"""States of windows are made again from contributions, also while workers fold into them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import to_micros
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.features import window_states
from headwater.features.cells import make_change
from headwater.features.window_states import WindowStates
from headwater.model.values import Cell
from headwater.ports import Backends, Replacement
from headwater.testing import ManualClock
from headwater.windows.plan import Member
from headwater.windows.state import decode_state, evaluate

pytestmark = pytest.mark.both_environments

HOUR = timedelta(hours=1)
Given = tuple[str, timedelta, Any]
"""A contribution: the entity, how long ago it was, and the value."""


@pytest.fixture(autouse=True)
def shop(store: FeatureStore) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy", window=["1h", "7d"], aggregate=["count", "sum", "last"])
    def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])


async def opened(store: FeatureStore) -> tuple[Backends, FeatureDef]:
    engine = await runtime_of(store).open()
    return engine.backends, engine.registry.feature("spend")


async def contribute(
    store: FeatureStore, clock: ManualClock, given: Sequence[Given], first: int = 0
) -> None:
    """Add contributions to history only, written in the order of the list."""
    backends, family = await opened(store)
    now = clock.now()
    changes = []
    for number, (entity_id, ago, value) in enumerate(given, start=first):
        text = msgspec.Raw(msgspec.json.encode(value))
        cell = Cell(text, to_micros(now - ago), to_micros(now) + number)
        changes.append(make_change(family, entity_id, cell, f"e{number}", online=False))
    await backends.offline.append(changes)


def values(family: FeatureDef, cell: Cell | None, moment: int) -> dict[str, Any]:
    """Return the values of a family's features in a state."""
    windows = family.windows
    assert windows is not None
    plan = windows.plan
    state = None if cell is None else decode_state(plan, cell.value)
    members = [Member(window, one) for window in plan.windows for one in plan.aggregates]
    return dict(zip(windows.members, evaluate(plan, state, members, moment), strict=True))


async def online(store: FeatureStore, clock: ManualClock, entity_id: str) -> dict[str, Any]:
    backends, family = await opened(store)
    (cells,) = await backends.online.get("User", [entity_id])
    return values(family, cells.get(family.series), clock.micros())


async def test_a_state_is_made_of_the_contributions_that_windows_reach(
    store: FeatureStore, clock: ManualClock
) -> None:
    given: list[Given] = [
        ("u1", HOUR / 2, 3.0),
        ("u1", 5 * HOUR, 4.0),
        ("u1", HOUR / 2, 5.0),
        ("u1", 30 * 24 * HOUR, 100.0),
        ("u2", 30 * 24 * HOUR, 1.0),
    ]
    await contribute(store, clock, given)
    backends, family = await opened(store)
    now = clock.micros()
    made = await WindowStates(backends).made_again(family, ["u1", "u2", "u3"], now)
    assert made["u3"] is None
    assert made["u2"] is not None, "longer windows would have a value"
    assert set(values(family, made["u2"], now).values()) == {0, None}
    cell = made["u1"]
    assert cell is not None
    assert (cell.as_of, cell.written_at) == (now - HOUR // timedelta(microseconds=2), now + 2)
    assert values(family, cell, now) == {
        "spend_count_1h": 2,
        "spend_sum_1h": 8.0,
        "spend_last_1h": 5.0,
        "spend_count_7d": 3,
        "spend_sum_7d": 12.0,
        "spend_last_7d": 5.0,
    }


@pytest.mark.parametrize("moments", [1, 3, 25])
async def test_contributions_are_read_in_pages_also_those_of_one_moment(
    store: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    monkeypatch.setattr(window_states, "_ROWS", 4)
    monkeypatch.setattr(window_states, "_ENTITIES", 2)
    given: list[Given] = [
        (f"u{user}", HOUR / 2 + timedelta(seconds=number % moments), float(number))
        for number in range(25)
        for user in range(5)
    ]
    await contribute(store, clock, given)
    backends, family = await opened(store)
    written = await WindowStates(backends).rebuild(family, [f"u{n}" for n in range(6)], clock)
    assert written == 6
    for user in range(5):
        found = await online(store, clock, f"u{user}")
        assert (found["spend_count_1h"], found["spend_sum_1h"]) == (25, sum(range(25)))
    assert (await online(store, clock, "u5"))["spend_count_1h"] == 0


async def test_a_rebuild_repeats_what_was_folded_into_meanwhile(
    store: FeatureStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await contribute(store, clock, [("u1", HOUR / 2, 1.0), ("u2", HOUR / 2, 1.0)])
    backends, family = await opened(store)
    states = WindowStates(backends)
    replace, late = backends.online.replace, [("u1", HOUR / 3, 2.0)]

    async def fold_first(entity: str, series: str, cells: dict[str, Replacement]) -> Any:
        if late:
            await contribute(store, clock, [late.pop()], first=10)
            made = await states.made_again(family, ["u1"], clock.micros())
            assert not await replace(entity, series, {"u1": (None, made["u1"])})
        return await replace(entity, series, cells)

    monkeypatch.setattr(backends.online, "replace", fold_first)
    assert await states.rebuild(family, ["u1", "u2"], clock) == 2
    assert (await online(store, clock, "u1"))["spend_sum_1h"] == 3.0
    assert (await online(store, clock, "u2"))["spend_sum_1h"] == 1.0


async def test_a_state_has_no_contribution_of_before_an_erasure(
    store: FeatureStore, clock: ManualClock
) -> None:
    await contribute(store, clock, [("u1", HOUR / 2, 1.0), ("u2", HOUR / 2, 1.0)])
    backends, family = await opened(store)
    clock.advance(HOUR / 4)
    await backends.erasures.erase("User", "u1", at=clock.micros(), may_return=True)
    clock.advance(HOUR / 100)
    after = msgspec.Raw(b"7.0")
    cell = Cell(after, clock.micros(), clock.micros())
    await backends.offline.append([make_change(family, "u1", cell, "e9", online=False)])
    await WindowStates(backends).rebuild(family, ["u1", "u2"], clock)
    assert (await online(store, clock, "u1"))["spend_sum_1h"] == 7.0
    assert (await online(store, clock, "u2"))["spend_sum_1h"] == 1.0


async def test_a_state_that_was_made_again_is_right_for_a_clock_that_is_a_hop_behind(
    store: FeatureStore, clock: ManualClock
) -> None:
    # The hop of a week is 6 hours.
    given = [("u1", timedelta(days=7, hours=hours / 2), 1.0) for hours in range(24)]
    await contribute(store, clock, given)
    backends, family = await opened(store)
    now = clock.now()
    made = await WindowStates(backends).made_again(family, ["u1"], to_micros(now))
    for behind in (timedelta(0), 3 * HOUR, 6 * HOUR):
        moment = to_micros(now - behind)
        first = (moment - 7 * 24 * 3_600_000_000) // (6 * 3_600_000_000)
        count = sum(to_micros(now - ago) // (6 * 3_600_000_000) >= first for _, ago, _ in given)
        assert values(family, made["u1"], moment)["spend_count_7d"] == count
