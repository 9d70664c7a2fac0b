"""Access: with a key, or from this machine only."""

import pytest

from headwater import FeatureStore
from headwater.errors import ConfigError
from headwater.http.app import create_app
from headwater.http.server.processes import serve
from headwater.model.callers import ALL_SCOPES
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, MakeStore, Serving, client_of, problem_of

READ = "/v1/features/visits?entity_id=u1"
PROTECTED = [
    ("GET", READ),
    ("POST", "/v1/features"),
    ("POST", "/ingest"),
    ("POST", "/ingest/visit"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nowhere"),
    ("DELETE", "/ingest"),
]


@pytest.mark.parametrize(("method", "path"), PROTECTED)
async def test_everything_needs_a_key(method: str, path: str, store: FeatureStore) -> None:
    async with client_of(store, key=None) as client:
        response = await client.request(method, path)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert problem_of(response)["type"].endswith(":key-required")
    assert "no API key was sent" in problem_of(response)["detail"]


async def test_an_unknown_key_is_told_from_a_missing_one(store: FeatureStore) -> None:
    async with client_of(store, key="unknown") as client:
        response = await client.get(READ)
    assert response.status_code == 401
    assert "the API key is not accepted" in problem_of(response)["detail"]


PUBLIC = {"/healthz", "/readyz", "/docs", "/docs.css"}
METHODS = [
    *("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"),
]


async def test_every_path_but_probes_and_pages_needs_a_key_with_every_method(
    store: FeatureStore,
) -> None:
    app = create_app(store)
    paths = {route.path for route in app.typed_routes} | {"/nowhere"}
    async with client_of(app, key=None) as client:
        without_key = {
            (path, method)
            for path in paths
            for method in METHODS
            if (await client.request(method, path)).status_code != 401
        }
    assert without_key == {
        (route.path, method)
        for route in app.typed_routes
        if route.scope == "public"
        for method in (route.method, "HEAD")
    }
    assert {path for path, _ in without_key} == PUBLIC


def test_every_route_has_a_scope(store: FeatureStore) -> None:
    scopes = {*ALL_SCOPES, "public", "any"}
    assert {route.scope for route in create_app(store).typed_routes} <= scopes
    any_key = [route.path for route in create_app(store).typed_routes if route.scope == "any"]
    assert any_key == ["/v1/me", "/v1/search", "/api/store", "/openapi.json"]


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_need_no_key(path: str, store: FeatureStore) -> None:
    async with client_of(store, key=None) as client:
        assert (await client.get(path)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": KEY},
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer {KEY}"},
        {"Authorization": "Basic abc", "X-API-Key": KEY},
    ],
)
async def test_a_key_comes_in_either_header(headers: dict[str, str], store: FeatureStore) -> None:
    async with client_of(store, key=None) as client:
        assert (await client.get(READ, headers=headers)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"X-API-Key": ""},
        {"X-API-Key": KEY[:-1]},
        {"X-API-Key": KEY + "x"},
        {"X-API-Key": f"Bearer {KEY}"},
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer"},
    ],
)
async def test_a_wrong_key_is_refused(headers: dict[str, str], store: FeatureStore) -> None:
    async with client_of(store, key=None) as client:
        response = await client.get(READ, headers=headers)
    assert response.status_code == 401
    assert KEY not in response.text


async def test_several_keys_are_valid_at_once(make_store: MakeStore) -> None:
    store = make_store(api_key="old, new")
    async with client_of(store, key=None) as client:
        for key, status in [("old", 200), ("new", 200), ("old, new", 401), ("", 401)]:
            response = await client.get(READ, headers={"X-API-Key": key})
            assert response.status_code == status


async def test_a_key_has_a_rate_limit(make_store: MakeStore) -> None:
    store = make_store(api_key="one,two", http={"rate_limit": 0.01})
    async with client_of(store, key=None) as client:
        one, two = {"X-API-Key": "one"}, {"X-API-Key": "two"}
        assert (await client.get(READ, headers=one)).status_code == 200
        response = await client.get(READ, headers=one)
        assert response.status_code == 429
        assert 1 <= int(response.headers["retry-after"]) <= 100
        problem_of(response)
        assert (await client.get(READ, headers=two)).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


async def test_without_a_key_this_machine_is_served(
    make_store: MakeStore, serving: Serving
) -> None:
    async with serving(make_store(api_key="")) as client:
        assert (await client.get(READ)).status_code == 200
        origin = {"Origin": "http://localhost:5173"}
        assert (await client.get(READ, headers=origin)).status_code == 200


@pytest.mark.parametrize("host", ["localhost", "app.localhost:8000", "127.0.0.1:1", "[::1]:8000"])
async def test_without_a_key_every_name_of_this_machine_is_served(
    host: str, make_store: MakeStore
) -> None:
    async with client_of(make_store(api_key="")) as client:
        assert (await client.get(READ, headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "rebound.example"},
        {"Host": "localhost.example:8000"},
        {"Host": "10.0.0.1"},
        {"Host": "[oops"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
async def test_without_a_key_a_page_of_another_site_cannot_ask(
    headers: dict[str, str], make_store: MakeStore
) -> None:
    async with client_of(make_store(api_key="")) as client:
        response = await client.post("/ingest/visit", json={"entity_id": "u1"}, headers=headers)
    assert response.status_code == 403
    assert problem_of(response)["type"].endswith(":foreign-request")


async def test_without_a_key_other_machines_cannot_ask(make_store: MakeStore) -> None:
    async with client_of(make_store(api_key=""), client=("192.0.2.7", 1234)) as client:
        assert (await client.get(READ)).status_code == 403


async def test_with_a_key_any_host_and_origin_may_ask(store: FeatureStore) -> None:
    async with client_of(store, client=("192.0.2.7", 1234)) as client:
        headers = {"Host": "api.example", "Origin": "https://app.example"}
        assert (await client.get(READ, headers=headers)).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.com"])
async def test_without_a_key_the_server_listens_on_this_machine_only(
    host: str, make_store: MakeStore
) -> None:
    with pytest.raises(ConfigError, match="HEADWATER_API_KEY"):
        await serve(make_store(api_key=""), host=host, port=0)


def test_production_is_not_served_without_a_key() -> None:
    store = FeatureStore(settings=Settings().replace(env="production"))
    with pytest.raises(ConfigError, match="HEADWATER_API_KEY"):
        create_app(store)
