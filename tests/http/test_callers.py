"""What the server tells a caller about its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.http.app import create_app
from headwater.http.routes.documentation import allows
from headwater.model.callers import ALL_SCOPES, AccessScope, Caller, CallerLimits
from tests.http.conftest import KEY, MakeStore, client_of, problem_of
from tests.http.key_files import add_key

NAMES = frozenset({"User"})


async def test_a_server_without_keys_reports_this_machine(make_store: MakeStore) -> None:
    app = create_app(make_store(api_key=""))
    async with client_of(app, key=None) as client:
        report = (await client.get("/v1/me")).json()
    assert report.keys() == {
        *("name", "scopes", "limits", "operations", "key_required", "environment", "version")
    }
    assert (report["name"], report["key_required"]) == ("this machine", False)
    assert set(report["scopes"]) == ALL_SCOPES
    assert report["operations"] == [f"{each.method} {each.path}" for each in app.typed_routes]


async def test_a_request_without_a_key_learns_nothing(make_store: MakeStore) -> None:
    async with client_of(make_store(), key=None) as client:
        assert problem_of(await client.get("/v1/me"))["status"] == 401


async def test_a_key_of_the_settings_has_every_scope(make_store: MakeStore) -> None:
    async with client_of(make_store()) as client:
        report = (await client.get("/v1/me")).json()
    assert report["key_required"]
    assert set(report["scopes"]) == ALL_SCOPES
    assert KEY not in str(report)


@pytest.mark.parametrize("limits", [{}, {"entities": NAMES}], ids=["unlimited", "limited"])
@pytest.mark.parametrize("scope", ["ingest", "metrics"])
async def test_operations_are_the_routes_that_do_not_refuse_the_key(
    make_store: MakeStore, tmp_path: Path, scope: AccessScope, limits: dict[str, frozenset[str]]
) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, "shop", scope, **limits)
    app = create_app(make_store(keys_file=str(path)))
    async with client_of(app, key=key) as client:
        report = (await client.get("/v1/me")).json()
        assert (report["name"], report["scopes"]) == ("shop", [scope])
        assert (report["limits"] is None) is not bool(limits)
        for route in app.typed_routes:
            response = await client.request(route.method, route.path)
            is_listed = f"{route.method} {route.path}" in report["operations"]
            assert (response.status_code != 403) is is_listed, route.path


async def test_limits_are_reported(make_store: MakeStore, tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    key = add_key(path, "acme", "read", entities=NAMES, tenant="acme-")
    async with client_of(make_store(keys_file=str(path)), key=key) as client:
        limits = (await client.get("/v1/me")).json()["limits"]
    assert limits == {
        "entities": ["User"],
        "contexts": None,
        "indexes": None,
        "tenant": "acme-",
        "ids": None,
    }


def test_admin_allows_every_route(make_store: MakeStore) -> None:
    admin = Caller("admin", frozenset({"admin"}))
    reader = Caller("reader", frozenset({"read"}), CallerLimits(entities=NAMES))
    routes = create_app(make_store()).typed_routes
    assert all(allows(admin, route) for route in routes)
    assert {route.scope for route in routes if allows(reader, route)} == {"public", "any", "read"}
