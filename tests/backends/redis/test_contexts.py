"""Contexts on real servers: assembled and verified over HTTP, read on the command line."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.http.app import create_app
from headwater.settings.schema import Settings


def desk(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="buy")
    async def total(user_id: str, event: ServiceEvent) -> int:
        return int(event.payload["amount"])

    @context(store, max_tokens=50, freshness_sla="5m", model="gpt-4o")
    def support(user_id: str) -> list[ContextItem]:
        return [ContextItem.template("The customer has spent {total}.", required=True)]

    return store


async def test_a_context_is_assembled_read_and_proved(
    production: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = desk(production)
    transport = httpx.ASGITransport(app=create_app(store))
    async with store, httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await store.publish("buy", "u1", {"amount": 5})
        await store.drain()
        response = await client.post("/v1/contexts/support", json={"params": {"user_id": "u1"}})
        assert response.status_code == 200, response.text
        made = response.json()
        assert made["content"] == "The customer has spent 5."
        assert (made["freshness_status"], made["meta"]["recorded"]) == ("guaranteed", True)
        (listed,) = (await client.get("/v1/contexts")).json()["contexts"]
        assert listed["context_id"] == made["context_id"]
        core = await client.get(f"/v1/record/{made['record_hash']}", params={"part": "core"})
        assert f"sha256:{hashlib.sha256(core.content).hexdigest()}" == made["record_hash"]
        trace = (await client.get(f"/context/{made['context_id']}/explain")).json()
        assert trace["features"][0]["value"] == 5

    # Another process, which knows the servers by its settings alone.
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "ENV": "production",
        "REDIS_URL": production.redis.url,
        "REDIS_PREFIX": production.redis.prefix,
        "POSTGRES_URL": production.postgres.url,
        "POSTGRES_SCHEMA": production.postgres.schema,
        "PARTITIONS": str(production.partitions),
    }.items():
        monkeypatch.setenv(f"HEADWATER_{name}", value)
    command = [sys.executable, "-m", "headwater", "context"]
    reference = made["context_id"]
    verified = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [*command, "verify", reference, "--json"], capture_output=True, timeout=100, check=True
    )
    assert msgspec.json.decode(verified.stdout)["ok"] is True
    shown = subprocess.run(  # noqa: ASYNC221 - nothing else runs here
        [*command, "show", reference, "--content"], capture_output=True, timeout=100, check=True
    )
    assert shown.stdout.decode() == made["content"]
