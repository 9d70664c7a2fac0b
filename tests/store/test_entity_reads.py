"""All values of one entity over HTTP, and the events behind the history of one value."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, feature
from headwater.testing import ManualClock
from tests.http.conftest import client_of, problem_of


@pytest.fixture
async def client(store: FeatureStore, user: type) -> AsyncIterator[httpx.AsyncClient]:
    """Declare features of all kinds and yield a client of their store."""
    declare_stored(store, user)
    declare_computed(store, user)
    async with client_of(store, key=None) as client:
        yield client


def declare_stored(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="purchase", freshness_sla="5m")
    async def total(user_id: str, event: ServiceEvent) -> float:
        before = await store.get_feature("total", user_id) or 0.0
        return float(before + event.payload["amount"])

    @feature(entity=user, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        await store.set_feature("seen", user_id, event.payload["page"])
        return 1

    @feature(entity=user, trigger="never")
    def seen(user_id: str, event: ServiceEvent) -> str:
        return ""

    @feature(entity=user, trigger="purchase")
    def effect(user_id: str, event: ServiceEvent) -> None: ...

    @feature(entity=user, trigger="purchase", window=["1h", "7d"], aggregate=["count", "max"])
    def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])


def declare_computed(store: FeatureStore, user: type) -> None:
    @feature(entity=user, template="spent {total}")
    def line(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user)
    def broken(user_id: str) -> int:
        raise ValueError("the password is hunter2")

    @feature(entity=user)
    def shout(user_id: str) -> str:
        return user_id.upper()


async def values_of(client: httpx.AsyncClient, entity_id: str) -> dict[str, dict[str, Any]]:
    response = await client.get(f"/v1/entities/User/{entity_id}")
    assert response.status_code == 200, response.text
    return {value["feature"]: value for value in response.json()["values"]}


async def test_all_values_of_an_entity_come_in_one_request(
    client: httpx.AsyncClient, store: FeatureStore, clock: ManualClock
) -> None:
    await store.publish("purchase", "ada", {"amount": 40.0}, timestamp=clock.now())
    await store.drain()
    clock.advance("2m")
    values = await values_of(client, "ada")
    windows = ["spend_count_1h", "spend_max_1h", "spend_count_7d", "spend_max_7d"]
    assert list(values) == ["total", "visits", "seen", *windows, "line", "broken", "shout"]
    total = values["total"]
    assert (total["value"], total["source"], total["age_ms"]) == (40.0, "online", 120_000)
    assert (total["sla_ms"], total["is_fresh"], total["violations"]) == (300_000, True, [])
    assert (values["visits"]["value"], values["visits"]["source"]) == (0, "default")
    assert (values["seen"]["value"], values["seen"]["source"]) == (None, "missing")
    assert values["shout"]["is_fresh"] is None
    assert values["line"]["value"] == "spent 40.0"


async def test_windows_are_values_at_the_moment_of_the_read(
    client: httpx.AsyncClient, store: FeatureStore, clock: ManualClock
) -> None:
    await store.publish("purchase", "ada", {"amount": 40.0}, timestamp=clock.now())
    await store.drain()
    clock.advance("2h")
    values = await values_of(client, "ada")
    count, largest = values["spend_count_1h"], values["spend_max_7d"]
    assert (count["value"], count["source"], count["age_ms"]) == (0, "online", 0)
    assert (largest["value"], largest["source"], largest["problem"]) == (40.0, "online", None)
    assert values["spend_max_1h"]["source"] == "missing"


async def test_a_feature_that_fails_has_a_problem_and_fails_no_other(
    client: httpx.AsyncClient,
) -> None:
    values = await values_of(client, "ada")
    problem = values["broken"]["problem"]
    assert problem["type"] == "urn:headwater:problem:feature-failed"
    assert "see the server log" in problem["detail"]
    assert "hunter2" not in problem["detail"]
    assert values["shout"]["value"] == "ADA"


async def test_an_unreadable_stored_value_fails_no_other(
    client: httpx.AsyncClient, store: FeatureStore, user: type, clock: ManualClock
) -> None:
    await store.set_feature("seen", "ada", "home")
    await store.set_feature("total", "ada", 2.0)
    changed = FeatureStore(settings=store.settings, clock=clock)

    @changed.entity
    class User:
        user_id: str

    @feature(entity=User, trigger="never")
    def seen(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, trigger="purchase")
    def total(user_id: str, event: ServiceEvent) -> float:
        return 1.0

    async with client_of(changed, key=None) as other:
        values = await values_of(other, "ada")
    await changed.close()
    assert values["seen"]["problem"]["type"] == "urn:headwater:problem:invalid-feature-value"
    assert values["total"]["value"] == 2.0


async def test_a_value_older_than_its_sla_is_not_fresh_and_neither_is_its_template(
    client: httpx.AsyncClient, store: FeatureStore, clock: ManualClock
) -> None:
    await store.publish("purchase", "ada", {"amount": 40.0}, timestamp=clock.now())
    await store.drain()
    clock.advance("6m")
    values = await values_of(client, "ada")
    assert (values["total"]["is_fresh"], values["line"]["is_fresh"]) == (False, False)
    (violation,) = values["line"]["violations"]
    assert (violation["name"], violation["used_by"]) == ("total", "line")
    assert (violation["age_ms"], violation["sla_ms"]) == (360_000, 300_000)


async def test_ids_of_any_text_can_be_looked_up(
    client: httpx.AsyncClient, store: FeatureStore
) -> None:
    hostile = "<b>مرحبا/../'\""
    await store.set_feature("seen", hostile, "page")
    assert (await values_of(client, quote(hostile, safe="")))["seen"]["value"] == "page"


async def test_an_unknown_entity_names_the_nearest_one(client: httpx.AsyncClient) -> None:
    problem = problem_of(await client.get("/v1/entities/Usr/ada"))
    assert (problem["status"], problem["nearest"]) == (404, "User")


async def test_history_names_the_events_behind_its_steps(
    client: httpx.AsyncClient, store: FeatureStore, clock: ManualClock
) -> None:
    at = clock.now()
    await store.publish("purchase", "ada", {"amount": 40.0}, timestamp=at, event_id="first")
    await store.publish("visit", "ada", {"page": "home"}, timestamp=at, event_id="visited")
    await store.drain()
    await store.set_feature("total", "ada", 7.0, as_of=at + timedelta(seconds=1))
    query = {"entity_id": "ada", "events": "true"}
    steps = (await client.get("/v1/features/total/history", params=query)).json()["values"]
    assert [step["cause"] for step in steps] == ["set", "first"]
    assert steps[0]["event"] is None
    assert steps[1]["event"]["event_type"] == "purchase"
    assert steps[1]["event"]["timestamp"] == steps[1]["as_of"]
    # A value that the handler of another feature has written.
    (seen,) = (await client.get("/v1/features/seen/history", params=query)).json()["values"]
    assert (seen["cause"], seen["event"]["event_type"]) == ("visited", "visit")


async def test_history_is_read_in_pages_by_time(
    client: httpx.AsyncClient, store: FeatureStore, clock: ManualClock
) -> None:
    at = clock.now()
    for number in range(5):
        moment = at + timedelta(seconds=number // 2)
        await store.set_feature("total", "ada", float(number), as_of=moment)
        clock.advance("1s")
    seen: list[float] = []
    query = {"entity_id": "ada", "limit": "2", "events": "true"}
    while True:
        page = (await client.get("/v1/features/total/history", params=query)).json()
        seen += [step["value"] for step in page["values"]]
        if page["next_end"] is None:
            break
        query["end"] = page["next_end"]
    assert list(dict.fromkeys(seen)) == [4.0, 3.0, 2.0, 1.0, 0.0]


async def test_history_with_events_is_bounded(client: httpx.AsyncClient) -> None:
    query = {"entity_id": "ada", "limit": "1001", "events": "true"}
    problem = problem_of(await client.get("/v1/features/total/history", params=query))
    assert "give a number from 1 to 1000" in problem["detail"]
