"""Failures of other feature stores in point-in-time reads, none of which may happen here.

Each was seen in a release of one of them: today's value in past rows, dropped UTC offsets,
multiplied, reordered or dropped rows, columns that vanish, values past their ttl, stores that
disagree, and a history that nothing writes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.testing import ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
async def noon(store: FeatureStore, user: type, clock: ManualClock) -> datetime:
    """A store whose features count events of each hour from noon on; return noon."""

    @feature(entity=user, trigger="click", default=0)
    async def clicks(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("clicks", user_id)) + 1

    @feature(entity=user, trigger="click", ttl="90m")
    def page(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["page"])

    @feature(entity=user)
    def today(user_id: str) -> str:
        return clock.now().isoformat()

    start = clock.now()
    for hour in range(3):
        await store.publish("click", "ada", {"page": f"p{hour}"}, timestamp=start + hour * HOUR)
        await store.drain()
        clock.advance(HOUR)
    return start


def spine(start: datetime, *hours: float, user_id: str = "ada") -> list[dict[str, Any]]:
    return [{"user_id": user_id, "timestamp": start + hour * HOUR} for hour in hours]


async def read(store: FeatureStore, frame: Any, *names: str) -> list[tuple[Any, ...]]:
    found = await store.get_historical_features(frame, list(names))
    return [tuple(row[name] for name in names) for row in found]


@pytest.mark.both_environments
async def test_triggered_values_are_in_history_at_once_and_with_their_own_times(
    store: FeatureStore, noon: datetime
) -> None:
    """Seen: nothing ever writes history, and both stores of one product answer differently."""
    frame = [*spine(noon, -0.1, 0, 0.9, 1, 2, 100), *spine(noon, 1, user_id="bob")]
    assert await read(store, frame, "clicks", "page") == [
        (0, None),
        (1, "p0"),
        (1, "p0"),
        (2, "p1"),
        (3, "p2"),
        (3, None),
        (0, None),
    ]


async def test_a_computed_feature_never_gives_its_value_of_today_to_past_rows(
    store: FeatureStore, noon: datetime
) -> None:
    """Seen: functions run at the time of the read, for rows of any time."""
    with pytest.raises(InvalidInputError, match=r"feature 'today' .*"):
        await store.get_historical_features(spine(noon, 1), ["clicks", "today"])


@pytest.mark.both_environments
async def test_utc_offsets_count(store: FeatureStore, noon: datetime) -> None:
    """Seen: an offset is dropped, so that rows see up to half a day of the future."""
    moment = (noon + HOUR).replace(tzinfo=None)
    rows = [
        {"user_id": "ada", "timestamp": datetime.fromisoformat(f"{moment.isoformat()}{offset}")}
        for offset in ("+00:00", "+02:00", "-02:00", "+05:45")
    ]
    assert await read(store, rows, "clicks") == [(2,), (0,), (3,), (0,)]
    frame = pd.DataFrame(rows[:1]).assign(
        timestamp=lambda df: df["timestamp"].dt.tz_convert("America/New_York")
    )
    assert (await store.get_historical_features(frame, ["clicks"]))["clicks"].tolist() == [2]


@pytest.mark.both_environments
async def test_no_row_is_multiplied_dropped_or_moved(
    store: FeatureStore, noon: datetime, clock: ManualClock
) -> None:
    """Seen: duplicate keys multiply rows, order is lost, and rows without a match are dropped."""
    for value in (10, 20, 30):  # several values of one moment
        await store.set_feature("clicks", "eve", value, as_of=noon)
    rows = [
        {"user_id": user_id, "timestamp": noon + hour * HOUR, "number": number}
        for number, (user_id, hour) in enumerate(
            [("eve", 1), ("zoe", 1), ("ada", 2), ("eve", 1), ("eve", 1), ("ada", 0), ("eve", -1)]
        )
    ]
    found = await store.get_historical_features(rows, ["clicks"])
    assert [row["number"] for row in found] == list(range(len(rows)))
    assert [row["clicks"] for row in found] == [30, 0, 3, 30, 30, 1, 0]
    frame = pd.DataFrame(rows, index=[3, 3, 1, 9, 9, 0, 5])
    table = await store.get_historical_features(frame, ["clicks"])
    assert table.index.tolist() == frame.index.tolist()
    assert table["clicks"].tolist() == [30, 0, 3, 30, 30, 1, 0]


async def test_a_missing_feature_is_an_error_and_never_a_missing_column(
    store: FeatureStore, user: type, noon: datetime
) -> None:
    """Seen: a feature without a table is silently left out of the result."""

    @feature(entity=user, trigger="never")
    def unused(user_id: str, event: ServiceEvent) -> float:
        return 1.0

    with pytest.raises(UnknownNameError, match="did you mean 'clicks'"):
        await store.get_historical_features(spine(noon, 1), ["clicks", "clickz"])
    frame = pd.DataFrame(spine(noon, 1, 2))
    found = await store.get_historical_features(frame, ["unused", "clicks"])
    assert list(found.columns) == [*frame.columns, "unused", "clicks"]
    assert str(found["unused"].dtype) == "float64"
    assert found["unused"].isna().all()


@pytest.mark.both_environments
async def test_a_value_past_its_ttl_is_missing_in_training_as_in_serving(
    store: FeatureStore, noon: datetime, clock: ManualClock
) -> None:
    """Seen: a value far past its ttl is served, or an older one takes its place."""
    frame = spine(noon, 2, 3.49, 3.5, 1000)
    assert await read(store, frame, "page") == [("p2",), ("p2",), (None,), (None,)]
    for known in (False, True):
        clock.advance(20 * HOUR)
        row = [{"user_id": "ada", "timestamp": clock.now()}]
        (found,) = await store.get_historical_features(row, ["page"], known=known)
        assert found["page"] is await store.get_feature("page", "ada") is None


async def test_future_values_never_leak(store: FeatureStore, noon: datetime) -> None:
    """Values of later moments do not change the answer about a moment."""
    frame = spine(noon, 0, 0.5, 1, 1.5)
    before = await read(store, frame, "clicks", "page")
    for hour in (1.6, 2, 3):
        await store.set_feature("clicks", "ada", 999, as_of=noon + hour * HOUR)
        await store.set_feature("page", "ada", "future", as_of=noon + hour * HOUR)
    assert await read(store, frame, "clicks", "page") == before
    assert await read(store, spine(noon, 1.6), "clicks") == [(999,)]


@pytest.mark.both_environments
async def test_known_at_equals_the_values_that_were_served(
    store: FeatureStore, noon: datetime, clock: ManualClock
) -> None:
    """Training equals serving: each read of the online store is found again in history."""
    served = []
    for number, late in enumerate((0, 30, 5, 90)):
        at = clock.now() - timedelta(minutes=late)
        await store.publish("click", "ada", {"page": f"late{number}"}, timestamp=at)
        await store.drain()
        (row,) = await store.get_feature_values(["clicks", "page"], ["ada"])
        served.append((clock.now(), row["clicks"].value, row["page"].value))
        clock.advance("7m")
    frame = [{"user_id": "ada", "timestamp": moment} for moment, *_ in served]
    found = await store.get_historical_features(frame, ["clicks", "page"], known=True)
    assert [(row["timestamp"], row["clicks"], row["page"]) for row in found] == served
