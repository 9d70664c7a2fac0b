"""Every route that was promised exists, and its response has the promised members."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from dev.fuzz.shop import KEY, shop
from headwater import FeatureStore
from tests.http.conftest import client_of

EVENT = {"entity_id": "ada", "payload": {"amount": 40}}
ACCEPTED = {"event_id", "event_type", "entity_id", "timestamp", "duplicate"}
VALUE = {"value", "as_of", "age_ms", "source"}
MANY = {"entity": "User", "entity_ids": ["ada"], "features": ["total_spend"]}
ASKED = {"params": {"user_id": "ada", "question": "Where is my parcel?"}}
ASSEMBLED = {
    "context_id",
    "record_hash",
    "content_hash",
    "content",
    "tokens",
    "cost",
    "freshness_status",
    "freshness_violations",
    "freshness_sla_ms",
    "interaction_ref",
    "lineage",
    "meta",
}
RECORD = {"format", "context_id", "record_hash", "content_hash", "core"}

# Method, path, body, status and members of the response; {id} and {hash} are of a context.
PROMISED: list[tuple[str, str, Any, int, set[str]]] = [
    ("POST", "/ingest/purchase", EVENT, 202, ACCEPTED),
    ("POST", "/ingest", [{"event_type": "purchase", **EVENT}], 202, {"events"}),
    ("GET", "/v1/record/{hash}", None, 200, RECORD),
    ("GET", "/v1/record/{id}", None, 200, RECORD),
    ("GET", "/v1/record/{hash}?part=core", None, 200, {"context_id", "versions"}),
    ("GET", "/v1/contexts?limit=5&name=support", None, 200, {"contexts", "next_cursor"}),
    (
        "GET",
        "/v1/contexts?start=2020-01-01T00:00:00Z&end=2099-01-01T00:00:00Z"
        "&freshness_status=degraded",
        None,
        200,
        {"contexts", "next_cursor"},
    ),
    ("GET", "/v1/context/{id}", None, 200, {"context_id", "record_hash", "lineage"}),
    ("GET", "/v1/context/{id}/lineage", None, 200, {"features", "retrievers"}),
    ("GET", "/context/{id}/explain", None, 200, {"context_id"}),
    ("GET", "/v1/context/{id}/explain", None, 200, {"context_id"}),
    ("GET", "/v1/features/total_spend?entity_id=ada", None, 200, {"feature", "entity_id", *VALUE}),
    ("POST", "/v1/features", MANY, 200, {"entity", "rows"}),
    ("POST", "/api/features/get", MANY, 200, {"entity", "rows"}),
    ("POST", "/v1/contexts/support", ASKED, 200, ASSEMBLED),
    ("POST", "/api/context/assemble", {"context": "support", **ASKED}, 200, ASSEMBLED),
    (
        "GET",
        "/api/store",
        None,
        200,
        {"entities", "features", "retrievers", "contexts", "graph"},
    ),
    ("GET", "/healthz", None, 200, {"status"}),
    ("GET", "/readyz", None, 200, {"status", "parts"}),
    ("GET", "/v1/doctor", None, 200, {"status", "findings"}),
    ("GET", "/v1/audit-log", None, 200, {"entries", "next_cursor"}),
    ("GET", "/openapi.json", None, 200, {"openapi", "paths", "components"}),
]


@pytest.fixture
def served(tmp_path: Path) -> FeatureStore:
    return shop(tmp_path)


async def test_every_promised_route_exists_with_its_shape(served: FeatureStore) -> None:
    async with served, client_of(served, key=KEY) as client:
        made = await client.post("/v1/contexts/support", json=ASKED)
        named = {"id": made.json()["context_id"], "hash": made.json()["record_hash"]}
        for method, path, body, status, members in PROMISED:
            response = await client.request(method, path.format(**named), json=body)
            assert response.status_code == status, (path, response.text)
            assert members <= response.json().keys(), (path, members - response.json().keys())


async def test_other_promised_routes_are_not_json(served: FeatureStore) -> None:
    async with served, client_of(served, key=KEY) as client:
        await is_served(client, "/metrics", "text/plain")
        await is_served(client, "/docs.css", "text/css")
        page = await is_served(client, "/docs", "text/html")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        same = await client.get("/docs", headers={"If-None-Match": page.headers["etag"]})
        assert same.status_code == 304


async def is_served(client: httpx.AsyncClient, path: str, media_type: str) -> httpx.Response:
    response = await client.get(path)
    assert response.status_code == 200, path
    assert response.headers["content-type"].startswith(media_type)
    return response
