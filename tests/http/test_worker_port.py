"""The port of a worker: its readiness and its metrics."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from headwater import FeatureStore, Worker
from headwater.errors import ConfigError
from headwater.http.app import create_worker_app
from headwater.http.server.processes import serve_worker
from tests.http.conftest import KEY, MakeStore, damage, problem_of, wait_until


def client_of(
    store: FeatureStore, worker: Worker, key: str | None = None, client: str = "127.0.0.1"
) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(create_worker_app(store, worker), client=(client, 4711)),
        base_url="http://localhost",
        headers={"X-API-Key": key} if key else {},
    )


@asynccontextmanager
async def at_work(store: FeatureStore) -> AsyncIterator[tuple[Worker, httpx.AsyncClient]]:
    """A worker that runs next to its port."""
    worker = Worker(store)
    ready: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(
        serve_worker(store, worker, host="127.0.0.1", port=0, on_ready=ready.set_result)
    )
    async with httpx.AsyncClient(base_url=await ready or "", timeout=30) as client:
        yield worker, client
    worker.stop()
    await serving


async def test_a_worker_is_ready_once_it_shows_that_it_lives(store: FeatureStore) -> None:
    idle = Worker(store)
    async with client_of(store, idle) as client:
        response = await client.get("/readyz")
        assert response.status_code == 503
        parts = {part["name"]: part["ok"] for part in response.json()["parts"]}
        assert parts.pop("worker") is False
        assert all(parts.values())
    async with at_work(store) as (_, client):

        async def ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await wait_until(ready)
        assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_a_worker_that_stops_or_whose_store_is_damaged_is_not_ready(
    store: FeatureStore,
) -> None:
    worker = Worker(store)
    worker.stop()
    assert not worker.health().ok
    await damage(store)
    async with client_of(store, Worker(store)) as client:
        response = await client.get("/readyz")
    assert response.status_code == 503
    assert not any(part["ok"] for part in response.json()["parts"])


async def test_a_worker_serves_its_metrics_with_the_key(store: FeatureStore) -> None:
    await store.publish("visit", "u1")
    async with at_work(store) as (_, client):
        assert (await client.get("/metrics")).status_code == 401

        async def handled() -> bool:
            metrics = await client.get("/metrics", headers={"X-API-Key": KEY})
            lines = metrics.text.splitlines()
            return f"headwater_owned_partitions {store.settings.partitions + 1}.0" in lines and any(
                line.startswith('headwater_events_processed_total{event_type="visit"}')
                for line in lines
            )

        await wait_until(handled)


async def test_a_worker_serves_nothing_else(store: FeatureStore) -> None:
    async with client_of(store, Worker(store), KEY) as client:
        for path in ("/v1/features/visits?entity_id=u1", "/openapi.json", "/"):
            assert problem_of(await client.get(path))["status"] == 404


async def test_without_a_key_its_metrics_are_for_this_machine_also_in_production(
    make_store: MakeStore,
) -> None:
    store = make_store(api_key="", env="production")
    async with client_of(store, Worker(store)) as client:
        assert (await client.get("/metrics")).status_code == 200
    async with client_of(store, Worker(store), client="192.0.2.7") as client:
        assert (await client.get("/metrics")).status_code == 403
    with pytest.raises(ConfigError, match="HEADWATER_API_KEY"):
        await serve_worker(store, Worker(store), host="0.0.0.0", port=0)
