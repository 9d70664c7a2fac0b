"""Streamable HTTP: a real server, and the client of the SDK."""

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from headwater import FeatureStore
from headwater.access.key_format import generate_api_key, hash_of
from headwater.access.keys_file import ApiKey, changing_keys
from headwater.cli.serving import mcp_mount
from headwater.http.server.processes import serve, serve_mounts
from headwater.store.loader import load_store
from tests.engine.support import until
from tests.mcp.conftest import call, problem

JSON = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": "2026-07-28",
}
KEY = "a-key-of-the-tests-0123456789"


@asynccontextmanager
async def serving(store: FeatureStore, *, with_api: bool = False) -> AsyncIterator[str]:
    """Serve a store in this process; yield the URL of its MCP endpoint."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "on_ready": ready.set_result}
    mounts = [mcp_mount(store)]
    running = asyncio.create_task(
        serve(store, worker=False, mounts=mounts, **options)
        if with_api
        else serve_mounts(store, mounts, **options)
    )
    started: set[asyncio.Future[Any]] = {ready, running}
    await asyncio.wait(started, return_when=asyncio.FIRST_COMPLETED)
    try:
        yield f"{ready.result()}/mcp"
    finally:
        running.cancel()
        await asyncio.wait({running})


@asynccontextmanager
async def connected(url: str, key: str = "", mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as sender,
        Client(streamable_http_client(url, http_client=sender), mode=mode) as client,
    ):
        yield client


@pytest.mark.both_environments
@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_reads_and_assembles_over_http(
    shop: FeatureStore, features: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("HEADWATER_API_KEY", KEY)
    async with serving(load_store(features)) as url, connected(url, KEY, mode) as client:
        value, known = await call(client, "get_feature", feature="total_spend", entity_id="ada")
        assert (value["value"], known["freshness"]) == (5.0, "guaranteed")
        found, known = await call(client, "context_support", user_id="ada", question="Why?")
        resource = await client.read_resource(f"headwater://record/{known['record_hash']}")
        assert found["context_id"] in resource.model_dump_json()
        assert len((await client.list_resources()).resources) == 2


@pytest.fixture
def reader_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a key that has the scope read alone."""
    key = generate_api_key("reader")
    with changing_keys(tmp_path / "keys.toml") as keys:
        keys["reader"] = ApiKey(hash=hash_of(key), scopes=frozenset({"read"}))
    monkeypatch.setenv("HEADWATER_KEYS_FILE", str(tmp_path / "keys.toml"))
    return key


async def test_a_key_sees_the_tools_of_its_scopes_and_a_wrong_key_nothing(
    shop: FeatureStore, features: Path, reader_key: str
) -> None:
    async with serving(load_store(features)) as url:
        async with connected(url, reader_key) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            assert names == {
                "get_feature",
                "get_features",
                "get_windows",
                "list_declarations",
                "search_index",
            }
            assert "the key 'reader' does not have the scope 'records'" in await problem(
                client, "verify_record", ref="0" * 36
            )
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        async with httpx.AsyncClient(timeout=60) as sender:
            for key in ("", "wrong"):
                answer = await sender.post(url, json=body, headers={"X-API-Key": key})
                assert answer.status_code == 401
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.json()["title"] == "API key required"
            # An admitted caller whose message is malformed gets an answer of the protocol.
            answer = await sender.post(url, content=b"{", headers=JSON | {"X-API-Key": reader_key})
            assert answer.status_code == 400
            assert answer.json()["error"]["message"] == "Parse error"
            assert {"x-request-id", "x-content-type-options"} <= answer.headers.keys()


async def test_without_keys_only_this_machine_is_answered(
    shop: FeatureStore, features: Path
) -> None:
    async with serving(load_store(features), with_api=True) as url:
        async with connected(url) as client:
            await call(client, "get_feature", feature="shout", entity_id="ada")
        async with httpx.AsyncClient(timeout=60) as sender:
            for header in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
                answer = await sender.post(url, json={}, headers=header)
                assert answer.status_code == 403
            # Nothing is kept between requests, so there is no stream to open and none to close.
            assert (await sender.get(url)).status_code == 405
            assert (await sender.delete(url)).status_code == 405
            large = await sender.post(url, json={"padding": "x" * 2_000_000})
            assert large.status_code == 413
            assert (await sender.get(url.removesuffix("/mcp") + "/healthz")).status_code == 200


async def test_a_client_that_leaves_cancels_its_call(
    shop: FeatureStore, features: Path, tmp_path: Path
) -> None:
    async def exists(name: str) -> bool:
        return (tmp_path / name).exists()

    async with serving(load_store(features)) as url, connected(url) as client:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(client.call_tool, "context_endless", {"folder": str(tmp_path)})
                await until(lambda: exists("begun"))
                scope.cancel()
        await until(lambda: exists("cancelled"))
        value, _ = await call(client, "get_feature", feature="shout", entity_id="ada")
        assert value["value"] == "ADA!"


async def test_any_process_answers_any_request(
    shop: FeatureStore, features: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_MCP_ENABLED", "true")
    commands = (["mcp", str(features), "--http"], ["serve", str(features), "--workers", "0"])
    async with (
        processes(*commands) as (one, other),
        connected(one) as first,
        connected(f"{other}/mcp") as second,
    ):
        found, known = await call(first, "context_support", user_id="ada", question="Why?")
        _, same = await call(second, "verify_record", ref=found["context_id"])
        assert same == known


@asynccontextmanager
async def processes(*commands: list[str]) -> AsyncIterator[list[str]]:
    """Run servers in processes; yield the URLs that they print."""
    servers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headwater", *command, "--port", "0", "--json"),
            stdout=subprocess.PIPE,
        )
        for command in commands
    ]
    try:
        yield [await printed_url(server) for server in servers]
    finally:
        for server in servers:
            server.terminate()
        assert [await server.wait() for server in servers] == [0] * len(servers)


async def printed_url(server: asyncio.subprocess.Process) -> str:
    """Return the URL in the first line of JSON; a features file may print lines before it."""
    assert server.stdout
    async for line in server.stdout:
        if line.startswith(b"{"):
            url: str = json.loads(line)["url"]
            return url
    raise AssertionError("the server ended before it was ready")
