"""Events that are visible when the response to their publishing arrives."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from headwater import FeatureStore
from headwater.client import AsyncClient, Client
from headwater.declarations.runtime import runtime_of
from headwater.model.events import PublishedEvent
from headwater.model.values import ServiceEvent
from headwater.settings.schema import Settings
from tests.engine.support import backlog, until
from tests.http.conftest import KEY, MakeStore, Serving, problem_of

BODY = {"entity_id": "u1", "payload": {"amount": 10}}
WAIT = {"wait": "60s"}


async def spent(client: httpx.AsyncClient, user_id: str = "u1") -> Any:
    response = await client.get("/v1/features/total_spend", params={"entity_id": user_id})
    return response.json()["value"]


def is_waiting(store: FeatureStore) -> bool:
    return bool(runtime_of(store).publisher.waits._deadlines)  # noqa: SLF001 - nothing shows it


async def test_an_event_published_with_wait_is_visible_in_the_next_request(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store) as client:
        for number in range(1, 6):
            response = await client.post("/ingest/purchase", params=WAIT, json=BODY)
            assert response.status_code == 202
            assert response.json()["visible"] is True
            assert "problem" not in response.json()
            assert await spent(client) == 10 * number


async def test_a_batch_published_with_wait_is_visible_in_the_next_request(
    store: FeatureStore, serving: Serving
) -> None:
    batch = [{**BODY, "event_type": "purchase", "entity_id": f"u{n}"} for n in range(10)]
    async with serving(store) as client:
        response = await client.post("/ingest", params=WAIT, json=batch)
        assert [event["visible"] for event in response.json()["events"]] == [True] * 10
        assert [await spent(client, f"u{n}") for n in range(10)] == [10] * 10


async def test_an_event_that_is_not_visible_is_accepted_with_the_problem(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store, worker=False) as client:
        response = await client.post("/ingest/purchase?wait=20ms", json=BODY)
        assert response.status_code == 202
        assert response.json()["visible"] is False
        assert response.json()["problem"].startswith("no worker is running")
    async with serving(store) as client:
        failing = {"entity_id": "u2", "payload": {}}
        response = await client.post("/ingest/purchase", params=WAIT, json=failing)
        assert response.json()["problem"].startswith("total_spend could not handle it")


async def test_without_wait_the_response_does_not_tell(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store) as client:
        accepted = (await client.post("/ingest/purchase", json=BODY)).json()
    assert accepted.keys().isdisjoint({"visible", "problem"})


@pytest.mark.parametrize(
    ("wait", "detail"),
    [("61s", "longer than the maximum of 60s"), ("soon", "'soon'"), ("", "''"), ("2", "'2'")],
)
async def test_an_impossible_wait_is_refused(
    store: FeatureStore, client: httpx.AsyncClient, wait: str, detail: str
) -> None:
    refused = await client.post("/ingest/purchase", params={"wait": wait}, json=BODY)
    assert refused.status_code == 422
    assert detail in problem_of(refused)["detail"]
    assert await backlog(store) == 0


async def test_a_client_that_disconnects_ends_the_wait_and_not_the_publishing(
    store: FeatureStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(store, worker=False) as client:
        request = asyncio.create_task(client.post("/ingest/purchase", params=WAIT, json=BODY))
        await until(lambda: is_waiting(store))
        request.cancel()
        await until(lambda: not is_waiting(store))
        assert await backlog(store) == 1
    assert '"status":499' in capsys.readouterr().err


async def test_requests_that_wait_leave_the_others_alone(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store, worker=False) as client:
        waiting = [
            asyncio.create_task(client.post("/ingest/purchase", params=WAIT, json=BODY))
            for _ in range(50)
        ]
        await until(lambda: is_waiting(store))
        assert (await client.get("/v1/features/shout?entity_id=g")).status_code == 200
        assert (await client.post("/ingest/visit", json={"entity_id": "u1"})).status_code == 202
        await store.drain()
        for request in waiting:
            assert (await request).json()["visible"] is True


async def test_a_server_that_stops_answers_at_once(store: FeatureStore, serving: Serving) -> None:
    async with (
        AsyncExitStack() as running,
        httpx.AsyncClient(headers={"X-API-Key": KEY}, timeout=60) as other,
    ):
        client = await running.enter_async_context(serving(store, worker=False))
        other.base_url = client.base_url
        request = asyncio.create_task(other.post("/ingest/purchase", params=WAIT, json=BODY))
        await until(lambda: is_waiting(store))
        began = time.monotonic()
        await running.aclose()
        answer = (await request).json()
        assert answer["visible"] is False
        assert answer["problem"].startswith("the server is stopping")
        assert time.monotonic() - began < 30


async def test_the_client_waits_on_the_server_also_beyond_its_timeout(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store) as http:
        url = str(http.base_url)
        async with AsyncClient(url, key=KEY, settings=Settings()) as client:
            event = await client.publish("purchase", "u1", {"amount": 5}, wait="60s")
            assert isinstance(event, PublishedEvent)
            assert event.visible
            assert await client.get_feature("total_spend", "u1") == 5
            result = await client.bus.publish(
                ServiceEvent("purchase", "u1", {"amount": 5}), wait="60s"
            )
            assert result.visible
            assert type(await client.publish("visit", "u1")) is ServiceEvent

        def publish() -> PublishedEvent:
            with Client(url, key=KEY, settings=Settings()) as blocking:
                return blocking.publish("purchase", "u1", {"amount": 5}, wait="60s")

        assert (await asyncio.to_thread(publish)).visible
        assert await spent(http) == 15


async def test_the_timeout_of_a_client_does_not_end_its_wait(
    store: FeatureStore, serving: Serving
) -> None:
    async with (
        serving(store, worker=False) as http,
        AsyncClient(str(http.base_url), key=KEY, settings=Settings(), timeout=1) as client,
    ):
        event = await client.publish("purchase", "u1", {"amount": 5}, wait="1200ms")
        assert event.problem.startswith("no worker is running")


async def test_a_key_waits_only_for_what_it_may_publish(
    make_store: MakeStore, client: httpx.AsyncClient
) -> None:
    refused = await client.post(
        "/ingest/purchase", params=WAIT, json=BODY, headers={"X-API-Key": "another"}
    )
    assert refused.status_code == 401
