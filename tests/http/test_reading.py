"""Reading over HTTP: one feature, or many features of many entities."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from headwater import FeatureStore
from tests.http.conftest import Gate, Serving, problem_of

READ = "/v1/features"


async def test_one_value_comes_with_its_age_and_source(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    await store.publish("purchase", "u1", {"amount": 12.5}, timestamp=moment)
    await store.drain()
    response = await client.get(f"{READ}/total_spend", params={"entity_id": "u1"})
    assert response.status_code == 200
    answer = response.json()
    assert answer.pop("age_ms") >= 0
    assert answer == {
        "feature": "total_spend",
        "entity_id": "u1",
        "value": 12.5,
        "as_of": "2026-01-01T00:00:00Z",
        "source": "online",
    }


@pytest.mark.parametrize(
    ("name", "value", "source"),
    [
        ("total_spend", None, "missing"),
        ("visits", 0, "default"),
        ("shout", "U1!", "computed"),
        ("blurb", None, "missing"),
    ],
)
async def test_the_source_says_where_a_value_came_from(
    name: str, value: Any, source: str, client: httpx.AsyncClient
) -> None:
    answer = (await client.get(f"{READ}/{name}", params={"entity_id": "u1"})).json()
    assert (answer["value"], answer["source"]) == (value, source)


async def test_a_value_with_fields_is_an_object(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    await store.publish("moved", "u1", {"city": "Bern"}, timestamp=moment)
    await store.drain()
    answer = (await client.get(f"{READ}/address", params={"entity_id": "u1"})).json()
    assert answer["value"] == {"city": "Bern", "since": "2026-01-01T00:00:00Z"}


async def test_an_unknown_feature_is_named_with_the_nearest_match(
    client: httpx.AsyncClient,
) -> None:
    response = await client.get(f"{READ}/total_spent", params={"entity_id": "u1"})
    assert response.status_code == 404
    problem = problem_of(response)
    assert problem["type"].endswith(":unknown-feature")
    assert problem["name"] == "total_spent"
    assert problem["nearest"] == "total_spend"
    assert "did you mean 'total_spend'?" in problem["detail"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "entity_id"),
        ("entityid=u1", "entityid"),
        ("entity_id=u1&entity_id=u2", "entity_id"),
    ],
)
async def test_a_query_that_does_not_fit_is_refused(
    query: str, field: str, client: httpx.AsyncClient
) -> None:
    response = await client.get(f"{READ}/total_spend?{query}")
    assert response.status_code == 422
    assert problem_of(response)["field"] == field


async def test_an_empty_entity_id_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.get(f"{READ}/total_spend?entity_id=")
    assert response.status_code == 422


async def test_an_id_that_does_not_fit_its_entity_is_refused(client: httpx.AsyncClient) -> None:
    assert (await client.get(f"{READ}/next_number?entity_id=41")).json()["value"] == 42
    response = await client.get(f"{READ}/next_number?entity_id=many")
    assert response.status_code == 422
    assert "whole number" in problem_of(response)["detail"]


@pytest.mark.parametrize("query", ["entity_id=%FF", "entity_id=%ED%A0%80"])
async def test_a_query_that_is_not_utf8_is_a_bad_request(
    query: str, client: httpx.AsyncClient
) -> None:
    assert (await client.get(f"{READ}/total_spend?{query}")).status_code == 400


@pytest.mark.parametrize("entity_id", ["zoë", "a b+c&d=e", "100%", "a/b", "日本"])
async def test_any_text_can_be_an_entity_id(entity_id: str, client: httpx.AsyncClient) -> None:
    answer = (await client.get(f"{READ}/shout", params={"entity_id": entity_id})).json()
    assert answer["entity_id"] == entity_id
    assert answer["value"] == entity_id.upper() + "!"


async def test_sql_in_an_entity_id_is_only_text(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    evil = "u1'); DROP TABLE entities; DROP TABLE events; --"
    for entity_id in ("u1", evil):
        body = {"entity_id": entity_id, "payload": {"amount": 5}}
        assert (await client.post("/ingest/purchase", json=body)).status_code == 202
    await store.drain()
    for entity_id in ("u1", evil, "u1' OR '1'='1"):
        answer = (await client.get(f"{READ}/total_spend", params={"entity_id": entity_id})).json()
        assert answer["value"] == (None if "OR" in entity_id else 5)


async def test_many_features_of_many_entities_come_in_the_requested_order(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    for number in (1, 2):
        await store.publish("purchase", f"u{number}", {"amount": number})
    await store.drain()
    features = ["total_spend", "shout", "blurb"]
    response = await client.post(
        READ, json={"entity_ids": ["u2", "u9", "u1"], "features": features}
    )
    assert response.status_code == 200
    answer = response.json()
    assert answer["entity"] == "User"
    assert [row["entity_id"] for row in answer["rows"]] == ["u2", "u9", "u1"]
    assert all(list(row["values"]) == features for row in answer["rows"])
    totals = [row["values"]["total_spend"]["value"] for row in answer["rows"]]
    assert totals == [2, None, 1]
    value = answer["rows"][0]["values"]["blurb"]
    assert value.keys() == {"value", "as_of", "age_ms", "source"}
    assert value["value"] == "U2! has spent 2.0"


async def test_a_large_request_is_answered_whole(client: httpx.AsyncClient) -> None:
    ids = [f"u{number}" for number in range(1_001)]
    response = await client.post(READ, json={"entity_ids": ids, "features": ["visits"]})
    assert [row["entity_id"] for row in response.json()["rows"]] == ids


async def test_the_entity_may_be_named_and_is_then_checked(client: httpx.AsyncClient) -> None:
    body = {"entity_ids": ["u1"], "features": ["visits"]}
    assert (await client.post(READ, json=body | {"entity": "User"})).status_code == 200
    other = await client.post(READ, json=body | {"entity": "Order"})
    assert other.status_code == 422
    assert "'User'" in problem_of(other)["detail"]
    unknown = await client.post(READ, json=body | {"entity": "Usr"})
    assert unknown.status_code == 404
    assert problem_of(unknown)["nearest"] == "User"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"entity_ids": ["u1"], "features": ["visit"]}, 404),
        ({"entity_ids": ["u1"], "features": []}, 422),
        ({"entity_ids": ["u1"], "features": ["visits", "next_number"]}, 422),
        ({"entity_ids": [1], "features": ["visits"]}, 422),
        ({"entity_ids": [""], "features": ["visits"]}, 422),
        ({"entity_ids": "u1", "features": ["visits"]}, 422),
        ({"ids": ["u1"], "features": ["visits"]}, 422),
        ([], 422),
    ],
)
async def test_a_request_for_many_that_does_not_fit_is_refused(
    body: Any, status: int, client: httpx.AsyncClient
) -> None:
    response = await client.post(READ, json=body)
    assert response.status_code == status
    problem_of(response)


async def test_half_a_character_in_an_entity_id_is_refused(client: httpx.AsyncClient) -> None:
    body = rb'{"entity_ids": ["\ud800"], "features": ["visits"]}'
    response = await client.post(READ, content=body)
    assert response.status_code in (400, 422)


async def test_a_head_request_is_answered_without_a_body(client: httpx.AsyncClient) -> None:
    got = await client.get(f"{READ}/shout?entity_id=u1")
    head = await client.head(f"{READ}/shout?entity_id=u1")
    assert head.status_code == 200
    assert head.content == b""
    assert head.headers["content-type"] == got.headers["content-type"]


async def test_a_slow_sync_feature_does_not_keep_others_waiting(
    store: FeatureStore, serving: Serving, gate: Gate
) -> None:
    async with serving(store) as client:
        reading = asyncio.create_task(client.get(f"{READ}/slow?entity_id=u1"))
        await asyncio.to_thread(gate.entered.wait, 30)
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get(f"{READ}/visits?entity_id=u1")).status_code == 200
        assert not reading.done()
        gate.open.set()
        assert (await reading).json()["value"] == "done"
