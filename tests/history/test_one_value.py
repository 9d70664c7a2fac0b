"""One value over time: in Python, over HTTP and on the command line."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest
from httpx import ASGITransport

from headwater import FeatureStore, ServiceEvent, feature
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.http.app import create_app
from headwater.testing import ManualClock


@pytest.fixture
async def moments(store: FeatureStore, user: type, clock: ManualClock) -> list[datetime]:
    """Declare features of all kinds and write three values, one of them late."""

    @feature(entity=user, trigger="moved", order="event_time")
    def since(user_id: str, event: ServiceEvent) -> datetime:
        return event.timestamp

    @feature(entity=user, template="since {since}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, derived=True)
    async def year(user_id: str) -> int:
        return int((await store.get_feature("since", user_id)).year)

    @feature(entity=user)
    def plain(user_id: str) -> int:
        return 1

    @feature(entity=user, trigger="moved")
    def effect(user_id: str, event: ServiceEvent) -> None: ...

    start = clock.now()
    times = [start + timedelta(minutes=minute) for minute in (10, 20, 15)]
    for at in times:
        clock.advance("30m")
        await store.publish("moved", "u1", timestamp=at, event_id=f"e{at:%M}")
        await store.drain()
    return times


@pytest.mark.both_environments
async def test_values_over_time_are_typed_and_the_newest_first(
    store: FeatureStore, moments: list[datetime]
) -> None:
    first, last, late = moments
    values = await store.get_feature_history("since", "u1")
    assert [value.value for value in values] == [last, late, first]
    assert [value.as_of for value in values] == [last, late, first]
    assert [value.cause for value in values] == [f"e{at:%M}" for at in (last, late, first)]
    assert values[1].written_at > values[0].written_at > values[2].written_at
    assert await store.get_feature_history("since", "u2") == []


@pytest.mark.both_environments
async def test_values_over_time_can_be_limited_by_time_and_number(
    store: FeatureStore, moments: list[datetime]
) -> None:
    first, last, late = moments

    async def values(**options: Any) -> list[datetime]:
        return [past.value for past in await store.get_feature_history("since", "u1", **options)]

    assert await values(start=late) == [last, late]
    assert await values(end=last) == [late, first]
    assert await values(start=late, end=last) == [late]
    assert await values(limit=1) == [last]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("line", "is a template, which is composed at every read .* read that of since"),
        ("year", "is derived: it is computed at every read .* get_historical_features"),
        ("plain", "has no history, because it is computed at every read; .* log=True .* derived"),
        ("effect", "is annotated `-> None`, so it never has a value"),
    ],
)
async def test_a_feature_without_history_is_refused_with_the_reason(
    store: FeatureStore, moments: list[datetime], name: str, problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await store.get_feature_history(name, "u1")


async def test_invalid_arguments_are_refused(store: FeatureStore, moments: list[datetime]) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'since'"):
        await store.get_feature_history("sinc", "u1")
    with pytest.raises(InvalidInputError, match="limit is 0; give a number from 1 to 10000"):
        await store.get_feature_history("since", "u1", limit=0)
    with pytest.raises(InvalidInputError, match="end needs a time zone"):
        await store.get_feature_history("since", "u1", end=datetime(2026, 1, 1))  # noqa: DTZ001


async def test_the_route_returns_the_same_values(
    store: FeatureStore, moments: list[datetime]
) -> None:
    _, last, late = (at.isoformat().replace("+00:00", "Z") for at in moments)
    app = create_app(store)
    async with httpx.AsyncClient(
        transport=ASGITransport(app), base_url="http://localhost"
    ) as client:
        path = "/v1/features/since/history"
        found = (await client.get(path, params={"entity_id": "u1", "start": late})).json()
        assert (found["feature"], found["entity_id"]) == ("since", "u1")
        assert [each["value"] for each in found["values"]] == [last, late]
        assert found["values"][0].keys() == {"value", "as_of", "written_at", "cause", "event"}
        params: dict[str, Any] = {"entity_id": "u1", "end": last, "limit": 1}
        one = (await client.get(path, params=params)).json()
        assert [each["as_of"] for each in one["values"]] == [late]
        refused = await client.get("/v1/features/line/history?entity_id=u1")
        assert (refused.status_code, "is a template" in refused.json()["detail"]) == (422, True)
        assert (await client.get("/v1/features/sinc/history?entity_id=u1")).status_code == 404
        assert (await client.get(path)).status_code == 422
        described = (await client.get("/openapi.json")).json()["paths"]
        parameters = described["/v1/features/{name}/history"]["get"]["parameters"]
        names = [parameter["name"] for parameter in parameters]
        assert names == ["name", "entity_id", "start", "end", "limit", "events"]
