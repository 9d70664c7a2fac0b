"""Probes, metrics, request logs and the OpenAPI document."""

import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.routing.route import Route
from tests.http.conftest import MakeStore, Serving, client_of, damage, wait_until
from tests.http.key_files import add_key

READ = "/v1/features/visits?entity_id=u1"


async def test_a_live_process_says_so(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json() == {"status": "ok"}


async def test_a_store_that_works_is_ready(client: httpx.AsyncClient) -> None:
    response = await client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "ready"
    assert all(part["ok"] for part in response.json()["parts"])


async def test_a_store_that_cannot_be_used_is_not_ready(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await damage(store)
    response = await client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["status"] == "not ready"
    assert [part["ok"] for part in response.json()["parts"]] == [False]
    assert (await client.get("/healthz")).status_code == 200


async def test_a_home_that_cannot_be_opened_is_not_ready(
    make_store: MakeStore, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    async with client_of(make_store(home=str(tmp_path / "file"), api_key="")) as client:
        response = await client.get("/readyz")
    assert response.status_code == 503
    assert str(tmp_path) in response.json()["parts"][0]["detail"]


async def test_a_probe_gets_no_details_if_other_routes_need_a_key(
    make_store: MakeStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    store = make_store(home=str(tmp_path / "file"))
    for key in (None, "a wrong key"):
        async with client_of(store, key) as client:
            response = await client.get("/readyz")
        assert response.status_code == 503
        assert str(tmp_path) not in response.text
        assert str(tmp_path) in capsys.readouterr().err


async def test_a_key_for_metrics_gets_the_details_of_a_failed_part(
    make_store: MakeStore, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    keys = tmp_path / "keys.json"
    details = {
        scope: await detail_for(
            add_key(keys, scope, scope),
            make_store(home=str(tmp_path / "file"), api_key="", keys_file=str(keys)),
        )
        for scope in ("metrics", "admin", "read")
    }
    assert str(tmp_path) in details["metrics"]
    assert str(tmp_path) in details["admin"]
    assert details["read"] == ""


async def detail_for(key: str, store: FeatureStore) -> str:
    """Return the detail of the failed part that a key is shown."""
    async with client_of(store, key) as client:
        response = await client.get("/readyz")
    assert response.status_code == 503
    detail: str = response.json()["parts"][0]["detail"]
    return detail


async def test_metrics_count_events_and_requests(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    before = await count(client, "headwater_http_requests_total", READ_LABELS)
    for _ in range(3):
        await client.get(READ)
    await client.post("/ingest/visit", json={"entity_id": "u1"})
    await store.drain()
    text = (await client.get("/metrics")).text
    for name in ("events_processed_total", "events_failed_total", "event_processing_seconds"):
        assert f"# TYPE headwater_{name.removesuffix('_total')}" in text
    assert await count(client, "headwater_http_requests_total", READ_LABELS) == before + 3


READ_LABELS = '{method="GET",route="/v1/features/{name}",status="200"}'


async def count(client: httpx.AsyncClient, name: str, labels: str) -> float:
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    found = re.search(re.escape(name + labels) + r" (\S+)", response.text)
    return float(found[1]) if found else 0.0


async def test_unknown_paths_and_methods_never_become_labels(client: httpx.AsyncClient) -> None:
    # A word that no other test gives to a feature, whose metrics this process may still have.
    await client.get("/v1/features/zyxname?entity_id=zyxid")
    await client.get("/zyxpath/of/a/scanner")
    await client.post("/ingest/zyxtype", json={"entity_id": "zyxid"})
    await client.request("ZYXMETHOD", "/healthz")
    text = (await client.get("/metrics")).text
    assert "zyx" not in text.lower()
    assert 'route="(unmatched)"' in text
    assert 'method="(other)"' in text


async def test_each_request_is_logged_once_and_soon(
    store: FeatureStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    written: list[dict[str, Any]] = []

    async def logged() -> bool:
        written.extend(map(msgspec.json.decode, capsys.readouterr().err.splitlines()))
        return any(record["event"] == "request" for record in written)

    async with serving(store) as client:
        await client.get(READ)
        await wait_until(logged)
    (record,) = [record for record in written if record["event"] == "request"]
    assert record["method"] == "GET"
    assert record["route"] == "/v1/features/{name}"
    assert record["path"] == "/v1/features/visits"
    assert record["status"] == 200
    assert record["duration_ms"] > 0
    assert record["caller"] == "api_key 1"


async def test_a_request_just_before_the_end_is_logged(
    store: FeatureStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(store) as client:
        await client.get(READ)
    assert '"event":"request"' in capsys.readouterr().err


async def test_without_content_the_request_log_has_no_ids(
    make_store: MakeStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(make_store(record={"include_content": False})) as client:
        await client.get("/v1/entities/User/secret-id")
        await client.get("/nowhere/secret-id")
    logged = capsys.readouterr().err
    assert '"path":"/v1/entities/{' in logged
    assert "secret-id" not in logged


async def test_the_request_log_can_be_turned_off(
    make_store: MakeStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(make_store(http={"access_log": False})) as client:
        await client.get(READ)
    assert '"event":"request"' not in capsys.readouterr().err


async def test_the_document_describes_every_route(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    document = (await client.get("/openapi.json")).json()
    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert described == {(route.method, route.path) for route in routes(store)}
    assert {"/ingest", "/ingest/{event_type}", "/v1/features/{name}"} <= document["paths"].keys()


async def test_every_reference_in_the_document_leads_somewhere(client: httpx.AsyncClient) -> None:
    response = await client.get("/openapi.json")
    schemas = response.json()["components"]["schemas"]
    references = re.findall(r'"\$ref":"#/components/schemas/(\w+)"', response.text)
    assert references
    assert set(references) <= schemas.keys()


async def test_the_document_describes_parameters_bodies_and_responses(
    client: httpx.AsyncClient,
) -> None:
    paths = (await client.get("/openapi.json")).json()["paths"]
    reading = paths["/v1/features/{name}"]["get"]
    assert [(p["name"], p["in"], p["required"]) for p in reading["parameters"]] == [
        ("name", "path", True),
        ("entity_id", "query", True),
    ]
    assert reading["security"] == [{"key": ["read"]}, {"bearer": ["read"]}]
    assert paths["/healthz"]["get"]["security"] == []
    batch = paths["/ingest"]["post"]
    assert "application/x-ndjson" in batch["requestBody"]["content"]
    assert "202" in batch["responses"]
    assert "application/problem+json" in batch["responses"]["422"]["content"]


def routes(store: FeatureStore) -> list[Route]:
    return [*create_app(store).typed_routes]
