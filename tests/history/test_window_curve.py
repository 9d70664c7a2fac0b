"""A window over time: its value at each contribution and where it falls, the newest first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from headwater import FeatureStore, HistoricalValue, ServiceEvent, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.history import window_curve
from headwater.testing import ManualClock

pytestmark = pytest.mark.both_environments

_MINUTE = timedelta(minutes=1)


@pytest.fixture
async def start(store: FeatureStore, user: type, clock: ManualClock) -> datetime:
    """Declare a window of an hour and publish three events, 10, 20 and 90 minutes after a hop."""

    @feature(entity=user, trigger="bought", window="1h", aggregate=["sum", "max"], hop="10m")
    def spend(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @feature(entity=user, trigger="bought", order="event_time")
    def amount(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    clock.advance((datetime.min.replace(tzinfo=UTC) - clock.now()) % timedelta(minutes=10))
    start = clock.now()
    clock.advance("4h")
    for minutes, amount_ in ((10, 5), (20, 3), (90, 1)):
        at = start + minutes * _MINUTE
        await store.publish(
            "bought", "u1", {"amount": amount_}, timestamp=at, event_id=f"e{minutes}"
        )
    await store.drain()
    return start


def shown(values: list[HistoricalValue], start: datetime) -> list[tuple[float, Any, str]]:
    """Return minutes after the start, values and causes."""
    return [((past.as_of - start) / _MINUTE, past.value, past.cause) for past in values]


async def test_a_window_has_a_value_at_each_contribution_and_where_it_falls(
    store: FeatureStore, start: datetime
) -> None:
    values = await store.get_feature_history("spend_sum_1h", "u1")
    # A window covers the whole hop in which it begins.
    assert shown(values, start) == [
        (160, 0, "passed"),
        (90, 1, "e90"),
        (80, 3, "passed"),
        (20, 8, "e20"),
        (10, 5, "e10"),
    ]


async def test_every_value_of_the_curve_is_the_one_of_a_frame(
    store: FeatureStore, start: datetime
) -> None:
    for name in ("spend_sum_1h", "spend_max_1h"):
        values = await store.get_feature_history(name, "u1")
        frame = [{"user_id": "u1", "timestamp": past.as_of} for past in values]
        rows = await store.get_historical_features(frame, [name])
        assert [row[name] for row in rows] == [past.value for past in values]
    assert [past.value for past in values] == [None, 1, 3, 5, 5]


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_curve_is_read_in_pages(store: FeatureStore, start: datetime, limit: int) -> None:
    for number in range(3):  # all of one moment
        at = start + 30 * _MINUTE
        await store.publish("bought", "u1", {"amount": number}, timestamp=at)
    await store.drain()
    whole = await store.get_feature_history("spend_sum_1h", "u1")
    history = (await runtime_of(store).open()).value_history
    pages: list[HistoricalValue] = []
    end: datetime | None = None
    while True:
        values, end = await history.page("spend_sum_1h", "u1", None, end, limit)
        assert len(values) <= limit
        pages += values
        if end is None:
            break
    assert pages == whole


async def test_a_curve_is_limited_by_time_and_shows_the_events(
    store: FeatureStore, start: datetime
) -> None:
    options: dict[str, Any] = {"start": start + 20 * _MINUTE, "end": start + 90 * _MINUTE}
    values = await store.get_feature_history("spend_sum_1h", "u1", **options)
    assert shown(values, start) == [(80, 3, "passed"), (20, 8, "e20")]


async def test_the_history_of_a_family_is_its_contributions(
    store: FeatureStore, start: datetime
) -> None:
    values = await store.get_feature_history("spend", "u1")
    assert shown(values, start) == [(90, 1, "e90"), (20, 3, "e20"), (10, 5, "e10")]


async def test_a_curve_of_too_many_contributions_is_refused(
    store: FeatureStore, start: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window_curve, "MOST_CONTRIBUTIONS", 2)
    with pytest.raises(InvalidInputError, match=r"more than 2 contributions of 'u1'; give a sm"):
        await store.get_feature_history("spend_sum_1h", "u1")
