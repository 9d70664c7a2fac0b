"""Named keys: scopes, expiry, rotation without a restart, and wrong keys."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from headwater.access import guard, key_ring
from headwater.access.key_format import hash_of
from headwater.access.keys_file import ApiKey, changing_keys
from headwater.errors import ConfigError
from headwater.http.app import create_app
from headwater.http.server.processes import serve
from headwater.model.callers import ALL_SCOPES
from tests.http.conftest import KEY, MakeStore, client_of, problem_of
from tests.http.key_files import add_key, sent

READ = "/v1/features/visits?entity_id=u1"

MakeKey = Callable[..., str]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


@pytest.fixture
def make_key(path: Path) -> MakeKey:
    """Return a function that adds a key to the file."""

    return partial(add_key, path)


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the file at every request."""
    monkeypatch.setattr(key_ring, "_POLL_SECONDS", 0.0)


def break_file(path: Path, state: str) -> None:
    path.unlink(missing_ok=True)
    if state == "invalid":
        path.write_text("[broken")
    elif state == "loop":
        path.symlink_to(path)


async def test_a_key_allows_its_scopes_only(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    keys = {scope: make_key(scope, scope) for scope in sorted(ALL_SCOPES)}
    app = create_app(make_store(keys_file=str(path)))
    # Refused after the key: a tail that begins does not end.
    no_event = {"last-event-id": "none"}
    async with client_of(app, key=None) as client:
        for route in app.typed_routes:
            for scope, key in keys.items():
                headers = sent(key) | no_event
                response = await client.request(route.method, route.path, headers=headers)
                is_allowed = route.scope in ("public", "any", scope) or scope == "admin"
                assert (response.status_code == 403) is not is_allowed, (route.path, scope)
                if not is_allowed:
                    problem = problem_of(response)
                    assert problem["type"].endswith(":scope")
                    assert (problem["key"], problem["scope"]) == (scope, route.scope)


async def test_a_replay_reads_a_record_and_may_run_its_function(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    keys = [make_key("assembling", "assemble"), make_key("reading", "records")]
    keys.append(make_key("both", "assemble", "records"))
    async with client_of(make_store(keys_file=str(path)), key=None) as client:
        for mode, statuses in [("show", [403, 404, 404]), ("live", [403, 403, 404])]:
            url, body = "/v1/context/01234567-unknown/replay", {"mode": mode}
            answers = [await client.post(url, json=body, headers=sent(key)) for key in keys]
            assert [answer.status_code for answer in answers] == statuses


async def test_keys_of_file_and_settings_are_valid_together(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    named = make_key("reader", "read")
    async with client_of(make_store(keys_file=str(path)), key=None) as client:
        for key, status in [(KEY, 200), (named, 200), (named + "x", 401), ("", 401)]:
            assert (await client.get(READ, headers=sent(key))).status_code == status


async def test_keys_are_replaced_without_a_restart(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    old = make_key("old", "read")
    async with client_of(make_store(api_key="", keys_file=str(path)), key=None) as client:
        assert (await client.get(READ, headers=sent(old))).status_code == 200
        new = make_key("new", "read")
        assert (await client.get(READ, headers=sent(new))).status_code == 200
        assert (await client.get(READ, headers=sent(old))).status_code == 200
        with changing_keys(path) as keys:
            del keys["old"]
        assert (await client.get(READ, headers=sent(old))).status_code == 401
        with changing_keys(path) as keys:
            del keys["new"]
        # A file without keys admits nobody; it does not open the server to this machine.
        assert (await client.get(READ, headers=sent(new))).status_code == 401
        assert (await client.get(READ)).status_code == 401


async def test_a_first_key_closes_a_running_server(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    async with client_of(make_store(api_key="", keys_file=str(path)), key=None) as client:
        assert (await client.get(READ)).status_code == 200
        key = make_key("first", "read")
        assert (await client.get(READ)).status_code == 401
        assert (await client.get(READ, headers=sent(key))).status_code == 200


@pytest.mark.parametrize("state", ["invalid", "missing", "loop"])
async def test_a_broken_file_keeps_the_keys_and_is_logged_once(
    make_store: MakeStore,
    make_key: MakeKey,
    path: Path,
    capsys: pytest.CaptureFixture[str],
    state: str,
) -> None:
    key = make_key("reader", "read")
    async with client_of(make_store(api_key="", keys_file=str(path)), key=None) as client:
        break_file(path, state)
        for _ in range(3):
            assert (await client.get(READ, headers=sent(key))).status_code == 200
        assert capsys.readouterr().err.count("keys file not read") == 1
        break_file(path, "missing")
        other = make_key("other", "read")
        assert (await client.get(READ, headers=sent(other))).status_code == 200
        assert (await client.get(READ, headers=sent(key))).status_code == 401


def test_a_broken_file_is_refused_at_the_start(make_store: MakeStore, path: Path) -> None:
    break_file(path, "invalid")
    with pytest.raises(ConfigError, match=r"keys\.toml cannot be read"):
        create_app(make_store(keys_file=str(path)))


async def test_the_file_is_looked_at_once_a_second(
    make_store: MakeStore, make_key: MakeKey, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "_POLL_SECONDS", 1_000.0)
    looks: list[Path] = []
    stat = os.stat

    def counted(file: Any, **options: Any) -> os.stat_result:
        if file == path:
            looks.append(file)
        return stat(file, **options)

    monkeypatch.setattr(os, "stat", counted)
    key = make_key("reader", "read")
    async with client_of(make_store(keys_file=str(path)), key=None) as client:
        before = len(looks)
        for _ in range(5):
            assert (await client.get(READ, headers=sent(key))).status_code == 200
        assert len(looks) == before


async def test_an_expired_key_is_refused(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    now = datetime.now(UTC)
    past = make_key("past", "read", expires=now - timedelta(seconds=1))
    valid = make_key("valid", "read", expires=now + timedelta(days=1))
    async with client_of(make_store(keys_file=str(path)), key=None) as client:
        response = await client.get(READ, headers=sent(past))
        assert response.status_code == 401
        assert "'past' has expired" in problem_of(response)["detail"]
        assert (await client.get(READ, headers=sent(valid))).status_code == 200


async def test_a_key_may_have_its_own_rate_limit(
    make_store: MakeStore, make_key: MakeKey, path: Path
) -> None:
    slow, usual = make_key("slow", "read", rate_limit=0.001), make_key("usual", "read")
    unlimited = make_key("unlimited", "read", rate_limit=0)
    store = make_store(keys_file=str(path), http={"rate_limit": 0.002})
    async with client_of(store, key=None) as client:
        for key, statuses in [(slow, [200, 429]), (usual, [200, 429]), (unlimited, [200, 200])]:
            answers = [await client.get(READ, headers=sent(key)) for _ in statuses]
            assert [answer.status_code for answer in answers] == statuses
        # Rewriting the file does not refill a limit.
        make_key("another", "read")
        assert (await client.get(READ, headers=sent(slow))).status_code == 429


async def test_an_address_has_a_rate_limit(make_store: MakeStore) -> None:
    app = create_app(make_store(http={"address_rate_limit": 0.001}))
    async with client_of(app, client=("192.0.2.1", 1)) as one:
        assert (await one.get(READ)).status_code == 200
        response = await one.get(READ)
        assert (response.status_code, "retry-after" in response.headers) == (429, True)
    async with client_of(app, client=("192.0.2.2", 1)) as two:
        assert (await two.get(READ)).status_code == 200


async def test_wrong_keys_of_an_address_are_slowed_down(
    make_store: MakeStore, make_key: MakeKey, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than all requests of this test take on a busy machine.
    monkeypatch.setattr(guard, "_WINDOW_SECONDS", 600.0)
    unused, generated = "written-by-hand-0123", make_key("unused", "read")
    with changing_keys(path) as keys:
        keys["by_hand"] = ApiKey(hash=hash_of(unused), scopes=frozenset({"read"}))
    app = create_app(make_store(keys_file=str(path)))
    async with client_of(app, key=None, client=("192.0.2.1", 1)) as client:
        assert (await client.get(READ, headers=sent(KEY))).status_code == 200
        wrong = [await client.get(READ, headers=sent(f"guess {n}")) for n in range(12)]
        assert [each.status_code for each in wrong] == [401] * 10 + [429] * 2
        assert problem_of(wrong[-1])["type"].endswith(":too-many-wrong-keys")
        assert 1 <= int(wrong[-1].headers["retry-after"]) <= 600
        # A key in use goes on working; one that could be a lucky guess has to wait.
        assert (await client.get(READ, headers=sent(KEY))).status_code == 200
        assert (await client.get(READ, headers=sent(unused))).status_code == 429
        assert (await client.get(READ, headers=sent(generated))).status_code == 200
        assert (await client.get(READ)).status_code == 401
    async with client_of(app, key=None, client=("192.0.2.2", 1)) as other:
        assert (await other.get(READ, headers=sent(unused))).status_code == 200


@pytest.mark.parametrize(
    "key", ["short", "changeme-changeme-changeme", "good-good-key-0123,aaaaaaaaaaaaaaaaaaaa"]
)
async def test_keys_that_are_easy_to_guess_are_refused_off_this_machine(
    key: str, make_store: MakeStore
) -> None:
    with pytest.raises(ConfigError, match="headwater keys create NAME"):
        await serve(make_store(api_key=key), host="0.0.0.0", port=0)


@pytest.mark.parametrize(
    "headers",
    [
        {"Forwarded": "for=192.0.2.60"},
        {"X-Forwarded-For": "192.0.2.60"},
        {"X-Forwarded-Host": "localhost"},
        {"X-Real-IP": "127.0.0.1"},
        {"CF-Connecting-IP": "192.0.2.60"},
        {"CF-Connecting-IPv6": "2001:db8::1"},
        {"True-Client-IP": "192.0.2.60"},
        {"X-Client-IP": "192.0.2.60"},
        {"Fastly-Client-IP": "192.0.2.60"},
        {"X-Azure-ClientIP": "192.0.2.60"},
        {"X-Original-Forwarded-For": "192.0.2.60"},
        {"X-Envoy-External-Address": "192.0.2.60"},
        {"CDN-Loop": "cloudflare"},
        {"Via": "1.1 proxy"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Origin": "https://evil.example"},
    ],
)
async def test_without_a_key_forwarded_and_foreign_requests_are_refused(
    headers: dict[str, str], make_store: MakeStore
) -> None:
    async with client_of(make_store(api_key="")) as client:
        response = await client.get(READ, headers=headers)
    assert response.status_code == 403
    assert problem_of(response)["type"].endswith(":foreign-request")


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:5173"},
    ],
)
async def test_without_a_key_pages_of_this_machine_are_served(
    headers: dict[str, str], make_store: MakeStore
) -> None:
    async with client_of(make_store(api_key="")) as client:
        assert (await client.get(READ, headers=headers)).status_code == 200
