"""The server process: API and worker, from the first connection to a clean stop."""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from headwater import FeatureStore, Worker, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import BackendError, ConfigError, DeclarationError
from headwater.http.app import create_app
from headwater.http.routing.request_metrics import RequestMetrics
from headwater.http.server import web_server
from headwater.http.server.processes import serve
from tests.http.conftest import KEY, MakeStore, Serving, wait_until

PROBE = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
PROGRAM = """
import asyncio, os, sys, time
from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.logging import log
from headwater.http.server import web_server
from headwater.http.server.processes import serve

log.configure("info", "json")
store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User)
def slow(user_id: str) -> str:
    print("entered", flush=True)
    sys.stdin.readline()
    return "done"

@feature(entity=User, trigger="visit", default=0)
async def visits(user_id: str, event: ServiceEvent) -> int:
    return await store.get_feature("visits", user_id) + 1

@feature(entity=User, trigger="stuck", max_retries=0)
async def stuck(user_id: str, event: ServiceEvent) -> int:
    print("entered", flush=True)
    await asyncio.sleep(3600)
    return 1

asyncio.run(serve(store, host="127.0.0.1", port=0, on_ready=lambda url: print(url, flush=True)))
print("closed", flush=True)
"""


@asynccontextmanager
async def program(folder: Path, **environment: str) -> AsyncIterator[tuple[Process, str]]:
    """Start a server in another process; return the process and its address."""
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            PROGRAM,
            cwd=folder,
            env={**os.environ, "HEADWATER_HOME": str(folder / "home"), **environment},
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
        )
    try:
        yield process, await line_of(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def line_of(process: Process) -> str:
    assert process.stdout
    async with asyncio.timeout(60):
        return (await process.stdout.readline()).decode().strip()


async def test_events_taken_in_change_the_values_served(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store) as client:
        for _ in range(3):
            await client.post("/ingest/visit", json={"entity_id": "u1"})

        async def counted() -> bool:
            answer = await client.get("/v1/features/visits?entity_id=u1")
            return bool(answer.json()["value"] == 3)

        await wait_until(counted)


async def test_without_a_worker_events_wait(store: FeatureStore, serving: Serving) -> None:
    async with serving(store, worker=False) as client:
        await client.post("/ingest/visit", json={"entity_id": "u1"})
        engine = await runtime_of(store).open()
        assert await engine.backends.bus.backlog() == 1


async def test_a_port_in_use_is_named(store: FeatureStore) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of 127.0.0.1 is in use"):
            await serve(store, host="127.0.0.1", port=port)


async def test_an_address_that_is_not_ours_is_refused(store: FeatureStore) -> None:
    with pytest.raises(ConfigError, match="cannot listen"):
        await serve(store, host="192.0.2.7", port=0)


async def test_a_store_that_cannot_be_opened_ends_the_server(
    make_store: MakeStore, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BackendError):
        await serve(make_store(home=str(tmp_path / "file")), host="127.0.0.1", port=0)


@pytest.mark.parametrize("worker", [True, False])
async def test_a_query_that_can_never_run_is_refused_before_the_server_listens(
    store: FeatureStore, worker: bool
) -> None:
    @entity(store)
    class Guest:
        guest_id: str

    @feature(entity=Guest, refresh="5m", sql="SELEC 'a' AS guest_id, 1 AS value")
    def wrong(guest_id: str) -> int: ...  # type: ignore[empty-body]

    announced: list[str] = []
    with pytest.raises(DeclarationError, match=r"'wrong': .*syntax error"):
        await serve(store, host="127.0.0.1", port=0, worker=worker, on_ready=announced.append)
    assert announced == []


async def test_a_worker_that_crashes_stops_the_server(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = asyncio.Event()

    async def run(self: Worker) -> None:
        await crash.wait()
        raise RuntimeError("the worker has a bug")

    monkeypatch.setattr(Worker, "run", run)
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    server = asyncio.create_task(serve(store, host="127.0.0.1", port=0, on_ready=ready.set_result))
    url = await ready
    crash.set()
    with pytest.raises(RuntimeError, match="has a bug"):
        await server
    async with httpx.AsyncClient(base_url=url) as client:
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")


async def test_a_request_that_is_not_http_is_logged(
    store: FeatureStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async with serving(store) as client:
        url = client.base_url
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"this is not HTTP\r\n\r\n")
        assert b"400" in await reader.readline()
        writer.close()
    records = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    # A busy machine may log warnings of other kinds.
    assert [(r["level"], r["detail"]) for r in records if r["event"] == "request refused"] == [
        ("warning", "the request is not valid HTTP/1.1: Invalid method encountered")
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_server_cleanly(number: signal.Signals, tmp_path: Path) -> None:
    async with program(tmp_path) as (process, url):
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            accepted = await client.post("/ingest/visit", json={"entity_id": "u1"})
            assert accepted.status_code == 202
            process.send_signal(number)
            assert await line_of(process) == "closed"
        assert await process.wait() == 0
    log = (tmp_path / "log").read_text()
    assert "worker stopped" in log
    assert '"event":"request"' in log
    assert "Traceback" not in log


async def test_a_request_in_flight_is_answered_before_the_end(tmp_path: Path) -> None:
    async with (
        program(tmp_path) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        reading = asyncio.create_task(client.get("/v1/features/slow?entity_id=u1"))
        assert await line_of(process) == "entered"
        process.send_signal(signal.SIGTERM)

        async def refused() -> bool:
            try:
                _, writer = await asyncio.open_connection(
                    client.base_url.host, client.base_url.port
                )
            except ConnectionError:  # reset, if the listener closes before it is accepted
                return True
            writer.close()
            return False

        await wait_until(refused)
        assert process.stdin
        process.stdin.write(b"\n")
        await process.stdin.drain()
        assert (await reading).json()["value"] == "done"
        assert await line_of(process) == "closed"
        assert await process.wait() == 0


async def test_a_kept_connection_ends_with_the_next_response_of_a_server_that_stops(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_server, "_LINGER_POLLS", 1_000_000)
    store, listener, ready = make_store(), web_server.listen("127.0.0.1", 0), asyncio.Event()
    server = web_server.WebServer(create_app(store), store.settings, listener, ready.set)
    serving = asyncio.create_task(server.run_until_stopped())
    await ready.wait()
    address = listener.getsockname()
    reader, writer = await asyncio.open_connection(*address)
    writer.write(PROBE)
    kept = await reader.readuntil(b"\r\n\r\n")
    assert b"connection: close" not in kept
    server.should_exit = True

    async def refused() -> bool:
        with suppress(ConnectionError):
            (await asyncio.open_connection(*address))[1].close()
            return False
        return True

    await wait_until(refused)
    writer.write(PROBE)
    assert b"HTTP/1.1 200 OK\r\n" in (last := await reader.read())
    assert b"\r\nconnection: close\r\n" in last
    writer.close()
    await serving


async def test_a_handler_that_does_not_end_does_not_keep_the_server(tmp_path: Path) -> None:
    async with (
        program(tmp_path, HEADWATER_WORKER_DRAIN_TIMEOUT="0.3") as (process, url),
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        await client.post("/ingest/stuck", json={"entity_id": "u1"})
        assert await line_of(process) == "entered"
        process.send_signal(signal.SIGTERM)
        assert await line_of(process) == "closed"
        assert await process.wait() == 0
    assert "worker stopped" in (tmp_path / "log").read_text()


async def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    async with (
        program(tmp_path) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=60) as client,
    ):
        await client.post("/ingest/stuck", json={"entity_id": "u1"})
        assert await line_of(process) == "entered"
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        assert await line_of(process) == "closed"
        assert await process.wait() == 0


@pytest.mark.parametrize("private", [True, False])
async def test_an_error_outside_the_routes_is_logged_in_privacy_mode_without_its_message(
    make_store: MakeStore,
    serving: Serving,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    private: bool,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("ada's diagnosis")

    async with serving(make_store(record={"include_content": not private})) as client:
        monkeypatch.setattr(RequestMetrics, "record", fail)
        await client.get("/healthz")
        monkeypatch.undo()
    said = capsys.readouterr().err
    assert "builtins.ValueError" in said if private else "ValueError: ada's diagnosis" in said
    assert ("diagnosis" in said) is not private


async def test_the_application_can_be_mounted_in_another(
    store: FeatureStore,
) -> None:
    outer = Starlette(routes=[Mount("/headwater", create_app(store))])
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(outer),
        base_url="http://localhost",
        headers={"X-API-Key": KEY},
    ) as client:
        answer = await client.get("/headwater/v1/features/shout?entity_id=u1")
        assert answer.json()["value"] == "U1!"
        assert (await client.get("/headwater/v1/nothing")).status_code == 404
