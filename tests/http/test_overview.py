"""The routes that show how a store is and was in the last hour."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from headwater import FeatureStore, create_app
from headwater.backends import connect
from headwater.core.clock import Clock
from headwater.doctor import overview
from headwater.engine.objectives import TARGETS
from headwater.features.event_handlers import BREAKER_OPEN
from headwater.model.health import Finding
from headwater.settings.schema import Settings
from tests.http.conftest import MakeStore, Serving, client_of, damage, wait_until
from tests.http.key_files import add_key


@pytest.fixture(autouse=True)
def _sound_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find nothing wrong with the machine and the process, which other tests use too.

    Its disk may be full, and its metrics show the open circuit breakers and objectives of other
    stores.
    """
    BREAKER_OPEN.clear()
    TARGETS.clear()

    async def inspect(settings: Settings, clock: Clock) -> list[Finding]:
        return [replace(each, severity="ok") for each in await connect.inspect(settings, clock)]

    monkeypatch.setattr(overview, "inspect", inspect)


async def test_a_server_has_a_series_from_its_start(store: FeatureStore, serving: Serving) -> None:
    async with serving(store) as client:

        async def is_sampled() -> bool:
            return bool((await series_of(client))["waiting"][-1] == 0)

        await wait_until(is_sampled)
        series = await series_of(client)
        assert series["step_seconds"] == 10
        lengths = {len(each) for each in series.values() if isinstance(each, list)}
        assert lengths == {360}


async def series_of(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/v1/series")
    assert response.status_code == 200
    body: dict[str, Any] = response.json()
    return body


async def test_the_overview_names_what_to_look_at_first(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    ready = await overview_of(client)
    assert (ready["status"], ready["title"]) == ("attention", "17 of 17 partitions have no worker")
    await client.post("/ingest/purchase", json={"entity_id": "u1", "payload": {"amount": "none"}})
    await store.drain()
    await client.post("/ingest/visit", json={"entity_id": "u1"})
    failing = await overview_when(client, status="failing")
    assert failing["subtitle"] == "17 of 17 partitions have no worker; 1 event waits."
    worst, letters = failing["findings"]
    assert (worst["severity"], worst["check"]) == ("error", "partitions")
    assert letters["subject"] == "1 dead letter"
    assert letters["summary"] == "of `total_spend`"
    assert letters["detail"].startswith("ValueError")
    assert letters["page"] == "dead-letters"
    assert letters["params"]["feature"] == "total_spend"
    assert failing["since"] <= failing["at"]
    (part,) = failing["stores"]
    assert part["name"] == "sqlite"
    assert part["ok"]
    assert "GiB free" in part["description"]


async def overview_of(client: httpx.AsyncClient) -> dict[str, Any]:
    response = await client.get("/v1/overview")
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


async def overview_when(client: httpx.AsyncClient, **expected: str) -> dict[str, Any]:
    """Return the first overview with some values; a busy machine may show others meanwhile."""
    found: list[dict[str, Any]] = []

    async def is_found() -> bool:
        found[:] = [await overview_of(client)]
        return expected.items() <= found[0].items()

    await wait_until(is_found)
    return found[0]


async def test_a_server_with_a_worker_is_healthy(store: FeatureStore, serving: Serving) -> None:
    async with serving(store) as client:
        ready = await overview_when(client, status="healthy")
        assert ready["title"] == "Ready for the first event"
        await client.post("/ingest/visit", json={"entity_id": "u1"})
        overview = await overview_when(client, title="Everything works")
        (worker,) = overview["workers"]
        assert worker["partitions"] == list(range(17))
        assert worker["heartbeat_seconds"] < 60
        assert overview["findings"] == []


async def test_the_overview_of_a_store_that_cannot_be_used_says_so(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await damage(store)
    overview = await overview_of(client)
    assert overview["status"] == "failing"
    assert overview["title"] == "Store is not ready"
    assert overview["findings"][0]["check"] == "health"


async def test_the_overview_needs_the_scope_of_metrics(
    make_store: MakeStore, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    key = add_key(keys, "reader", "read")
    async with client_of(make_store(keys_file=str(keys)), key) as client:
        for route in ("/v1/overview", "/v1/series"):
            assert (await client.get(route)).status_code == 403


async def test_only_keys_of_administrators_see_the_errors_of_functions(
    make_store: MakeStore, tmp_path: Path
) -> None:
    keys = tmp_path / "keys.json"
    scraper, admin = add_key(keys, "scraper", "metrics"), add_key(keys, "admin", "admin")
    store = make_store(keys_file=str(keys))
    app = create_app(store)
    async with client_of(app, admin) as client:
        await client.post(
            "/ingest/purchase", json={"entity_id": "u1", "payload": {"amount": "secret"}}
        )
        await store.drain()
        assert "secret" in (await client.get("/v1/overview")).text
    async with client_of(app, scraper) as client:
        overview = await overview_of(client)
        assert "secret" not in str(overview)
        (letters,) = [each for each in overview["findings"] if each["check"] == "dead letters"]
        assert letters["summary"] == "of `total_spend`"
        assert "scope `admin`" in letters["detail"]
        assert letters["params"] == {"feature": "total_spend"}
