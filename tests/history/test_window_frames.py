"""Windows in history: training rows have the values that were served, true or known."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.errors import InvalidInputError
from headwater.history import window_frames
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

_AGGREGATES = ["count", "sum", "avg", "min", "max", "stddev", "distinct", "p50", "first", "rate"]


@dataclass
class Purchase:
    amount: float
    category: str


@pytest.fixture
def families(store: FeatureStore, user: type) -> list[str]:
    """Declare families of every kind; return the names of their features."""

    @feature(
        entity=user,
        trigger="bought",
        window=["1h", "1d"],
        aggregate=[*_AGGREGATES, "last(2)"],
        default=-1.0,
    )
    def spend(user_id: str, event: ServiceEvent) -> float | None:
        amount = event.payload["amount"]
        return float(amount) if amount else None

    @feature(
        entity=user,
        trigger="bought",
        window=["1h", "1d"],
        aggregate=["count", "sum", "avg", "rate"],
    )
    def units(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(
        entity=user,
        trigger="bought",
        window="1d",
        aggregate=["sum", "last"],
        value="amount",
        by="category",
        where={"amount": {"$gt": 1}},
        max_keys=2,
    )
    def by_category(user_id: str, event: ServiceEvent) -> Purchase:
        return Purchase(float(event.payload["amount"]), event.payload["category"])

    @feature(entity=user, trigger="bought", window="1h", aggregate=["last", "first"])
    def at(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    handles: list[Any] = [spend, units, by_category, at]
    return [member.name for handle in handles for member in handle.members.values()]


async def served(store: FeatureStore, clock: ManualClock, names: list[str]) -> list[dict[str, Any]]:
    """Publish events, and return what is served after each of them and between them."""
    rows = []
    for number in range(24):
        clock.advance(timedelta(minutes=7 * (number % 5 + 1)))
        values = await store.get_features(names, ["u0", "u1", "u2"])
        for user_id, row in values.items():
            rows.append({"user_id": user_id, "timestamp": clock.now(), **row})
        clock.advance(timedelta(seconds=1))
        late = timedelta(minutes=90 if number % 6 == 5 else 0)
        amount = [3, 0, 7.25, 1, 0.1][number % 5]
        payload = {"amount": amount, "category": "abc"[number % 3]}
        timestamp = clock.now() - late
        await store.publish("bought", f"u{number % 2}", payload, timestamp=timestamp)
        await store.drain()
    return rows


async def test_known_values_are_those_that_were_served(
    store: FeatureStore, clock: ManualClock, families: list[str]
) -> None:
    rows = await served(store, clock, families)
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in rows]
    assert await store.get_historical_features(frame, families, known=True) == rows
    clock.advance("40d")  # nothing that was served depends on the present
    assert await store.get_historical_features(frame[::-1], families, known=True) == rows[::-1]


async def test_true_values_are_those_of_the_contributions_up_to_the_row(
    store: FeatureStore, clock: ManualClock, families: list[str]
) -> None:
    start = clock.now()
    for minutes, amount in ((10, 1), (70, 2), (20, 4), (65, 8), (70, 16)):
        clock.advance("35m")  # so the third and fourth one are late
        payload = {"amount": amount, "category": "a"}
        at = start + timedelta(minutes=minutes)
        await store.publish("bought", "u0", payload, timestamp=at)
    await store.drain()
    frame = [
        {"user_id": "u0", "timestamp": start + timedelta(minutes=minutes)}
        for minutes in (5, 10, 20, 69, 70, 71, 84, 200, 2_000)
    ]
    names = ["units_sum_1h", "units_count_1d", "units_avg_1h", "spend_first_1h", "spend_last2_1d"]
    rows = await store.get_historical_features(frame, names, with_as_of=True)
    assert [row["units_sum_1h"] for row in rows] == [0, 1, 5, 13, 31, 30, 26, 0, 0]
    assert [row["units_count_1d"] for row in rows] == [0, 1, 2, 3, 5, 5, 5, 5, 0]
    assert rows[4]["units_avg_1h"] == 31 / 5
    assert (rows[0]["units_avg_1h"], rows[0]["units_avg_1h__as_of"]) == (None, None)
    assert rows[0]["units_sum_1h__as_of"] == rows[0]["timestamp"]
    assert [row["spend_first_1h"] for row in rows[:6]] == [-1.0, 1.0, 1.0, 1.0, 1.0, 4.0]
    assert [row["spend_last2_1d"] for row in rows[3:6]] == [[4.0, 8.0], [2.0, 16.0], [2.0, 16.0]]


async def test_a_frame_divided_into_tasks_has_the_same_values_and_reports_progress(
    store: FeatureStore,
    clock: ManualClock,
    families: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = await served(store, clock, families)
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in rows]
    whole = await store.get_historical_features(frame, families)
    monkeypatch.setattr(window_frames, "ROWS_OF_A_TASK", 10)
    steps: list[tuple[int, int | None]] = []
    divided = await store.get_historical_features(
        frame, families, progress=lambda done, total: steps.append((done, total))
    )
    assert divided == whole
    assert steps == sorted(steps)
    assert steps[-1] == (len(rows), len(rows))


async def test_templates_and_derived_features_of_windows_are_computed_at_each_row(
    store: FeatureStore, user: type, clock: ManualClock, families: list[str]
) -> None:
    @feature(entity=user, template="{units_count_1h} for {units_sum_1h}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, derived=True)
    async def doubled(user_id: str) -> int:
        return 2 * int(await store.get_feature("units_sum_1d", user_id))

    names = ["line", "doubled", "units_sum_1h", "units_sum_1d"]
    rows = await served(store, clock, names)
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in rows]
    assert await store.get_historical_features(frame, names, known=True) == rows
    for row in await store.get_historical_features(frame, names):
        assert row["line"].endswith(f"for {row['units_sum_1h']}")
        assert row["doubled"] == 2 * row["units_sum_1d"]


async def test_an_export_has_the_same_values_of_windows(
    store: FeatureStore, clock: ManualClock, families: list[str], tmp_path: Path
) -> None:
    rows = await served(store, clock, families)
    frame = [{"user_id": row["user_id"], "timestamp": row["timestamp"]} for row in rows]
    await store.history.export(tmp_path / "export")
    options: dict[str, Any] = {"exported": tmp_path / "export"}
    assert await store.get_historical_features(frame, families, known=True, **options) == rows
    stored = await store.get_historical_features(frame, families)
    assert await store.get_historical_features(frame, families, **options) == stored


async def test_a_family_is_refused_with_the_names_of_its_features(
    store: FeatureStore, clock: ManualClock, families: list[str]
) -> None:
    frame = [{"user_id": "u0", "timestamp": clock.now()}]
    with pytest.raises(InvalidInputError, match=r"'units' is a family of windows .*units_sum_1h"):
        await store.get_historical_features(frame, ["units"])


async def test_a_row_whose_window_begins_before_the_pruned_history_is_refused(
    store: FeatureStore, clock: ManualClock, families: list[str]
) -> None:
    await served(store, clock, families)
    clock.advance("3d")
    horizon = clock.now() - timedelta(days=2)
    await store.admin.prune(history="2d", events="2d")
    early, late = horizon + timedelta(hours=23), horizon + timedelta(hours=26)
    frame = [{"user_id": "u0", "timestamp": at} for at in (late, early)]
    assert len(await store.get_historical_features(frame, ["units_sum_1h"])) == 2
    assert len(await store.get_historical_features(frame[:1], ["units_sum_1d"])) == 1
    with pytest.raises(InvalidInputError, match=r"row 1 is of .* the window of 1d .* was pruned"):
        await store.get_historical_features(frame, ["units_sum_1d"])


async def test_a_template_of_windows_is_as_of_the_row_also_where_nothing_contributed(
    store: FeatureStore, user: type, clock: ManualClock, families: list[str]
) -> None:
    @feature(entity=user, template="{units_count_1h} and {spend_max_1h} at {at_last_1h}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    moments = [clock.now() + timedelta(minutes=minutes) for minutes in (-5, 0, 5)]
    await store.publish("bought", "u0", {"amount": 3, "category": "a"}, timestamp=moments[1])
    await store.drain()
    clock.advance("10m")
    frame = [{"user_id": "u0", "timestamp": at} for at in moments]
    rows = await store.get_historical_features(frame, ["line"], with_as_of=True)
    assert rows[2]["line"].startswith("1 and 3.0 at ")
    assert [row["line__as_of"] for row in rows[1:]] == moments[1:]
