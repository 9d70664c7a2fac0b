"""The HTTP API on real servers, and while one of them is unavailable."""

from __future__ import annotations

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.http.app import create_app
from headwater.http.routes import health
from headwater.settings.schema import Settings
from tests.servers import restartable_postgres, valkey_node


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @context(store)
    async def spending(user_id: str) -> str:
        return f"{await store.get_feature('total', user_id)} spent"

    return store


@pytest.fixture(autouse=True)
def _patient_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give servers on an overloaded machine time to answer a probe."""
    monkeypatch.setattr(health, "_ANSWER_SECONDS", 60.0)


def client_of(store: FeatureStore) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(store))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def test_an_event_that_was_accepted_is_read_once_it_is_handled(settings: Settings) -> None:
    store = shop(settings)
    async with store, client_of(store) as client:
        event = {"entity_id": "u1", "payload": {"amount": 5}, "event_id": "e1"}
        first = await client.post("/ingest/buy", json=event)
        again = await client.post("/ingest/buy", json=event)
        assert (first.status_code, first.json()["duplicate"]) == (202, False)
        assert (again.status_code, again.json()["duplicate"]) == (202, True)
        await store.drain()
        answer = await client.get("/v1/features/total", params={"entity_id": "u1"})
        assert answer.json()["value"] == 5
        assert (await client.get("/readyz")).status_code == 200


async def test_past_the_limit_ingest_asks_the_caller_to_come_back(settings: Settings) -> None:
    store = shop(settings.replace(ingest={"max_backlog": 3}))
    async with store, client_of(store) as client:
        for number in range(5):
            await store.publish("buy", f"u{number}", {"amount": 1})
        refused = await client.post("/ingest/buy", json={"entity_id": "u1", "payload": {}})
        assert refused.status_code == 503
        assert refused.headers["retry-after"]


async def test_a_redis_that_is_gone_is_a_503_and_readiness_says_so(production: Settings) -> None:
    with valkey_node() as port:
        store = shop(production.replace(redis={"url": f"redis://127.0.0.1:{port}"}))
        await store.open()
    async with store, client_of(store) as client:
        refused = await client.post("/ingest/buy", json={"entity_id": "u1", "payload": {}})
        assert refused.status_code == 503
        assert refused.headers["content-type"] == "application/problem+json"
        read = await client.get("/v1/features/total", params={"entity_id": "u1"})
        made = await client.post("/v1/contexts/spending", json={"params": {"user_id": "u1"}})
        assert (read.status_code, made.status_code) == (503, 503), made.text
        ready = await client.get("/readyz")
        assert ready.status_code == 503
        parts = {part["name"]: part["ok"] for part in ready.json()["parts"]}
        assert parts == {"redis": False, "postgres": True}


async def test_without_postgres_events_are_accepted_and_readiness_is_degraded(
    settings: Settings,
) -> None:
    with restartable_postgres() as (url, _):
        store = shop(settings.replace(postgres={"url": url}))
        await store.open()
    async with store, client_of(store) as client:
        await client.post("/ingest/buy", json={"entity_id": "u1", "payload": {"amount": 5}})
        await store.drain()
        answer = await client.get("/v1/features/total", params={"entity_id": "u1"})
        assert answer.json()["value"] == 5
        ready = await client.get("/readyz")
        assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
