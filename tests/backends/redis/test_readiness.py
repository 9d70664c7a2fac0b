"""Readiness: answered although a server hangs, and true about writing."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import asyncpg
import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.http.app import create_app
from headwater.http.routes import health
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.servers import restartable_postgres, restartable_valkey, valkey_node

# Far longer than the test waits: only an answer that does not wait for the server comes in time.
PATIENT = 600


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    return store


def client_of(store: FeatureStore) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(store))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def asked(client: httpx.AsyncClient) -> tuple[int, dict[str, Any]]:
    """Return the status of the readiness probe, and its parts by name."""
    async with asyncio.timeout(60):
        response = await client.get("/readyz")
    return response.status_code, {part["name"]: part for part in response.json()["parts"]}


async def test_probes_are_answered_while_postgres_hangs(production: Settings) -> None:
    with restartable_postgres() as (url, machine):
        limits = {"url": url, "timeout": PATIENT, "connect_timeout": PATIENT}
        store = shop(production.replace(postgres=limits))
        async with store, client_of(store) as client:
            await until(lambda: is_ready(client))
            with machine.paused():
                for _ in range(3):
                    await until(lambda: says(client, "postgres", "did not answer within"))
                    status, parts = await asked(client)
                    # Redis may answer late, because the machine is overloaded.
                    assert status == (200 if parts["redis"]["ok"] else 503)
                    assert "did not answer within" in parts["postgres"]["detail"]
                await until(lambda: is_ready(client, degraded="postgres"))
                assert (await client.get("/healthz")).status_code == 200
            await until(lambda: is_ready(client))


async def test_probes_are_answered_while_redis_hangs(production: Settings) -> None:
    with restartable_valkey() as (url, machine):
        limits = {"url": url, "timeout": PATIENT, "connect_timeout": PATIENT}
        store = shop(production.replace(redis=limits))
        async with store, client_of(store) as client:
            await until(lambda: is_ready(client))
            with machine.paused():
                await until(lambda: says(client, "redis", "did not answer within"))
                assert (await asked(client))[0] == 503
                assert (await client.get("/healthz")).status_code == 200
            await until(lambda: is_ready(client))


async def test_a_redis_at_its_memory_limit_is_not_ready(production: Settings) -> None:
    with valkey_node() as port:
        url = f"redis://127.0.0.1:{port}/0"
        redis = Redis(url, timeout=60, connect_timeout=60)
        await redis.open()
        store = shop(production.replace(redis={"url": url}))
        async with store, client_of(store) as client:
            await until(lambda: is_ready(client))
            await redis.call(command("k", "CONFIG", "SET", "maxmemory", "1"))
            await until(lambda: says(client, "redis", "out of memory"))
            assert (await asked(client))[0] == 503
            refused = await client.post("/ingest/buy", json={"entity_id": "u1"})
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            await redis.call(command("k", "CONFIG", "SET", "maxmemory", "0"))
            await until(lambda: is_ready(client))
        await redis.close()


async def test_a_read_only_postgres_is_reported_and_events_are_still_accepted(
    production: Settings,
) -> None:
    with restartable_postgres() as (url, _):
        store = shop(production.replace(postgres={"url": url}))
        async with store, client_of(store) as client:
            await until(lambda: is_ready(client))
            operator = await asyncpg.connect(url)
            await operator.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            await operator.execute("SELECT pg_reload_conf()")
            await until(lambda: says(client, "postgres", "read-only"))
            await until(lambda: is_ready(client, degraded="postgres"))
            assert (await client.post("/ingest/buy", json={"entity_id": "u1"})).status_code == 202
            await operator.close()


async def test_many_probes_share_one_check(
    production: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_FRESH_SECONDS", 600.0)
    with valkey_node() as port:
        url = f"redis://127.0.0.1:{port}/0"
        redis = Redis(url, timeout=60, connect_timeout=60)
        await redis.open()
        store = shop(production.replace(redis={"url": url}))
        async with store, client_of(store) as client:
            await asyncio.gather(*(client.get("/readyz") for _ in range(50)))
            stats = (await redis.call(command("k", "INFO", "commandstats"))).decode()
            writes = re.search(r"cmdstat_set:calls=(\d+)", stats)
            assert writes
            assert int(writes[1]) == 1
        await redis.close()


async def is_ready(client: httpx.AsyncClient, degraded: str = "") -> bool:
    status, parts = await asked(client)
    return status == 200 and all(part["ok"] == (name != degraded) for name, part in parts.items())


async def says(client: httpx.AsyncClient, name: str, problem: str) -> bool:
    """Return whether a part has failed for this reason."""
    part = (await asked(client))[1][name]
    return not part["ok"] and problem in part["detail"]
