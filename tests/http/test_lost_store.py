"""While a store is known to have lost its data, reads and contexts say so."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.core.clock import SystemClock
from headwater.engine.objectives import ObjectiveKey, _recent
from headwater.errors import StoreLostError
from headwater.http.app import create_app
from headwater.settings.schema import Settings, on_servers
from tests.engine.support import until
from tests.http.conftest import problem_of

pytestmark = pytest.mark.both_environments

READ = "/v1/features/visits?entity_id=u1"
ASSEMBLE = {"context": "greeting", "params": {"user_id": "u1"}}


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings, clock=SystemClock())

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    @context(store)
    async def greeting(user_id: str) -> str:
        return f"{await store.get_feature('visits', user_id)} visits"

    return store


async def lose(settings: Settings) -> None:
    """Remove everything that the store holds, as the loss of a disk does."""
    if not on_servers(settings):
        shutil.rmtree(settings.home)
        return
    redis = Redis(settings.redis.url, timeout=5, connect_timeout=5)
    await redis.open()
    keys = await redis.call(command("any", "KEYS", f"{settings.redis.prefix}:*"))
    await redis.call(command("any", "DEL", *keys))
    await redis.close()


Opened = Callable[[Settings], Awaitable[tuple[FeatureStore, httpx.AsyncClient]]]


@pytest.fixture
async def lost(settings: Settings, home: Path) -> AsyncIterator[Opened]:
    """Open a store in which one visit was counted, and lose its data."""
    own = settings.replace(home=home / "lost")
    opened: list[tuple[FeatureStore, httpx.AsyncClient]] = []

    async def open_and_lose(chosen: Settings) -> tuple[FeatureStore, httpx.AsyncClient]:
        store = shop(chosen.replace(home=own.home))
        transport = httpx.ASGITransport(create_app(store))
        client = httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)
        opened.append((store, client))
        await store.publish("visit", "u1")
        await store.drain()
        assert (await client.get(READ)).json()["value"] == 1
        await lose(store.settings)
        return store, client

    yield open_and_lose
    for store, client in opened:
        await client.aclose()
        await store.close()


async def test_reads_and_contexts_of_a_lost_store_are_a_503_with_the_reason(
    lost: Opened, settings: Settings
) -> None:
    store, client = await lost(settings)

    async def is_refused() -> bool:
        return (await client.get(READ)).status_code == 503

    await until(is_refused)
    server, reason = (
        ("Redis", "missing from Redis") if on_servers(settings) else ("SQLite", "was deleted")
    )
    refusals = [
        await client.get(READ),
        await client.post("/v1/features", json={"features": ["visits"], "entity_ids": ["u1"]}),
        await client.post("/api/context/assemble", json=ASSEMBLE),
    ]
    for refusal in refusals:
        problem = problem_of(refusal)
        assert (problem["status"], problem["server"]) == (503, server), problem
        assert problem["type"].endswith(":store-lost")
        assert reason in problem["detail"]
    with pytest.raises(StoreLostError, match=reason):
        await store.get_feature("visits", "u1")
    with pytest.raises(StoreLostError, match=reason):
        await store.assemble("greeting", {"user_id": "u1"})


async def test_concurrent_reads_and_contexts_of_a_lost_store_are_all_refused(
    lost: Opened, settings: Settings
) -> None:
    store, client = await lost(settings)

    async def is_refused() -> bool:
        return (await client.get(READ)).status_code == 503

    await until(is_refused)
    reads = [store.get_feature("visits", "u1") for _ in range(8)]
    outcomes = await asyncio.gather(*reads, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreLostError] * 8
    contexts = [client.post("/api/context/assemble", json=ASSEMBLE) for _ in range(8)]
    assert [made.status_code for made in await asyncio.gather(*contexts)] == [503] * 8


async def test_those_who_prefer_defaults_get_them_but_never_guaranteed(
    lost: Opened, settings: Settings
) -> None:
    objectives = {"contexts": {"greeting": {"freshness": "1h"}}}
    store, client = await lost(settings.replace(lost_store="defaults", objectives=objectives))

    async def is_known() -> bool:
        made = await client.post("/api/context/assemble", json=ASSEMBLE)
        assert made.status_code == 200
        return bool(made.json()["freshness_status"] == "degraded")

    await until(is_known)
    key, bad = ObjectiveKey("context", "greeting", "freshness"), 1
    missed = _recent[key].count(3_600, bad)
    assert await store.get_feature_values(["visits"], ["u1"])
    made = await store.assemble("greeting", {"user_id": "u1"})
    assert made.freshness_status == "degraded"
    (violation,) = made.freshness_violations
    assert (violation.kind, violation.reason) == ("store", "lost")
    assert _recent[key].count(3_600, bad) == missed + 1
