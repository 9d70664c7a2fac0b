"""`headwater serve` and `headwater worker`."""

import asyncio
import http.client
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater import FeatureStore
from headwater.core.ui_files import is_ui_installed
from headwater.store.loader import load_store
from tests.cli.conftest import PATIENCE_SECONDS, Run, Start, wait_until
from tests.servers import quiet_port

MANY = 300

STUCK = """
import asyncio, pathlib
from headwater import FeatureStore, ServiceEvent, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User, trigger="visit")
async def stuck(user_id: str, event: ServiceEvent) -> int:
    pathlib.Path("begun").touch()
    await asyncio.sleep(60)
    return 1
"""


def ask(url: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def value_after_all(folder: Path, name: str, entity_id: str) -> Any:
    """Handle all waiting events and return the value."""

    async def read(store: FeatureStore) -> Any:
        async with store:
            await store.drain()
            return await store.get_feature(name, entity_id)

    return asyncio.run(read(load_store(folder / "features.py")))


def visits(count: int) -> str:
    return '{"event_type": "visit", "entity_id": "u1"}\n' * count


def test_a_server_takes_events_handles_them_and_ends_with_0(
    folder: Path, start_anew: Start
) -> None:
    server = start_anew("serve", "features.py", "--port", "0")
    url = server.next_line()["url"]

    def spent() -> Any:
        return ask(url, "GET", "/v1/features/total_spend?entity_id=u1")[1]["value"]

    assert spent() is None
    body = {"entity_id": "u1", "payload": {"amount": 2}}
    assert ask(url, "POST", "/ingest/purchase", body)[0] == 202
    wait_until(lambda: spent() == 2.0)
    batch = [{"event_type": "visit", "entity_id": "u1"}] * MANY
    assert ask(url, "POST", "/ingest", batch)[0] == 202
    ended = server.end()
    assert ended.code == 0
    assert ended.out == ""
    assert value_after_all(folder, "visits", "u1") == MANY


def test_a_worker_ends_with_0_and_loses_nothing(folder: Path, run: Run, start_anew: Start) -> None:
    assert run("events", "publish", "-", stdin=visits(MANY)).code == 0
    worker = start_anew("worker", "features.py")
    assert worker.next_line()["worker"]
    ended = worker.end()
    assert ended.code == 0
    assert "worker stopped" in ended.err
    assert value_after_all(folder, "visits", "u1") == MANY


def test_a_worker_handles_the_events_of_a_server_without_a_worker(
    folder: Path, run: Run, start: Start
) -> None:
    url = start("serve", "--workers", "0", "--port", "0").next_line()["url"]
    worker = start("worker", "features.py")
    worker.next_line()
    ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})
    wait_until(lambda: ask(url, "GET", "/v1/features/visits?entity_id=u1")[1]["value"] == 1)
    assert worker.end(signal.SIGINT).code == 0


def test_a_worker_serves_metrics_and_probes_on_its_port(
    folder: Path, run: Run, start: Start
) -> None:
    port = quiet_port()
    worker = start("worker", "features.py", "--metrics-port", str(port))
    said = worker.next_line()
    assert said["worker"]
    assert said["url"] == f"http://127.0.0.1:{port}"
    wait_until(lambda: ask(said["url"], "GET", "/readyz")[0] == 200)
    run("events", "publish", "visit", "u1")
    refused = run("worker", "--metrics-port", str(port))
    assert refused.code == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.err
    ended = worker.end()
    assert ended.code == 0
    assert "worker stopped" in ended.err
    assert value_after_all(folder, "visits", "u1") == 1


def test_a_second_signal_ends_a_worker_at_once(folder: Path, run: Run, start: Start) -> None:
    (folder / "features.py").write_text(STUCK)
    run("events", "publish", "visit", "u1")
    worker = start("worker")
    worker.next_line()
    wait_until((folder / "begun").exists)
    worker.send(signal.SIGINT)
    assert worker.end(signal.SIGTERM).code == 0


def test_a_second_signal_ends_a_server_whose_event_loop_is_blocked(
    folder: Path, run: Run, start: Start
) -> None:
    blocks = STUCK.replace("await asyncio.sleep(60)", "time.sleep(600)")
    (folder / "features.py").write_text(blocks.replace("import asyncio", "import time"))
    run("events", "publish", "visit", "u1")
    server = start("serve", "--port", "0")
    server.next_line()
    wait_until((folder / "begun").exists)
    server.send(signal.SIGINT)
    ended = server.end(signal.SIGTERM)
    assert ended.code == os.EX_SOFTWARE
    assert '"event":"process exits: event loop blocked"' in ended.err


def test_a_stop_signal_ends_a_blocked_server_after_the_drain_timeout(
    folder: Path, run: Run, start: Start
) -> None:
    blocks = STUCK.replace("await asyncio.sleep(60)", "time.sleep(600)")
    (folder / "features.py").write_text(blocks.replace("import asyncio", "import time"))
    run("events", "publish", "visit", "u1")
    server = start("serve", "--port", "0", HEADWATER_WORKER_DRAIN_TIMEOUT="0.1")
    server.next_line()
    wait_until((folder / "begun").exists)
    assert server.end().code == os.EX_SOFTWARE


READ_BLOCKS = """
import time
from headwater import FeatureStore, entity, feature

store = FeatureStore()

@entity(store)
class User:
    user_id: str

@feature(entity=User)
async def blocks(user_id: str) -> int:
    time.sleep(600)
    return 1
"""


def test_a_server_without_a_worker_logs_the_read_that_blocks_its_event_loop(
    folder: Path, start: Start
) -> None:
    (folder / "features.py").write_text(READ_BLOCKS)
    timeout = {"HEADWATER_WORKER_HANDLER_TIMEOUT": "2"}
    server = start("serve", "--port", "0", "--workers", "0", **timeout)
    url = server.next_line()["url"]
    with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as connection:
        connection.sendall(
            b"GET /v1/features/blocks?entity_id=u1 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
        logged = server.errors_until('"event":"event loop still blocked"')
    assert '"event":"event loop blocked"' in logged
    assert '"feature":"blocks","entity_id":"u1"' in logged
    assert "time.sleep(600)" in logged
    server.send(signal.SIGINT)
    assert server.end(signal.SIGTERM).code == os.EX_SOFTWARE


@pytest.mark.parametrize("verb", [("worker",), ("serve", "--port", "0")], ids=" ".join)
def test_a_process_that_waits_for_a_handler_says_how_to_end_at_once(
    folder: Path, run: Run, start: Start, verb: tuple[str, ...]
) -> None:
    (folder / "features.py").write_text(STUCK)
    run("events", "publish", "visit", "u1")
    process = start(*verb)
    process.next_line()
    wait_until((folder / "begun").exists)
    process.send(signal.SIGINT)
    said = process.errors_until('"event":"stopping"')
    assert '"waits_for":"running handlers, refreshes and requests"' in said
    assert '"hint":"press Ctrl-C again or send SIGTERM again to stop at once"' in said
    assert '"stopping"' not in process.end(signal.SIGINT).err


def test_a_worker_waits_for_a_handler_until_the_drain_timeout(
    folder: Path, run: Run, start: Start
) -> None:
    (folder / "features.py").write_text(STUCK)
    run("events", "publish", "visit", "u1")
    worker = start("worker", HEADWATER_WORKER_DRAIN_TIMEOUT="0.1")
    worker.next_line()
    wait_until((folder / "begun").exists)
    ended = worker.end()
    assert ended.code == 0
    assert "batches abandoned; they will run again" in ended.err


@pytest.mark.parametrize("verb", [("serve",), ("serve", "--reload")], ids=" ".join)
def test_closing_the_terminal_stops_a_server(start: Start, verb: tuple[str, ...]) -> None:
    server = start(*verb, "--port", "0")
    url = server.next_line()["url"]
    assert server.end(signal.SIGHUP).code == 0
    with pytest.raises(ConnectionRefusedError):
        ask(url, "GET", "/healthz")


def test_a_server_under_nohup_survives_the_terminal(start_anew: Start) -> None:
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # processes inherit it
    try:
        server = start_anew("serve", "--port", "0")
    finally:
        signal.signal(signal.SIGHUP, previous)
    url = server.next_line()["url"]
    server.send(signal.SIGHUP)
    assert ask(url, "GET", "/healthz")[0] == 200
    assert server.end().code == 0


def test_a_restarted_server_does_not_repeat_what_to_try(folder: Path) -> None:
    command = [sys.executable, "-m", "headwater", "serve", "--reload", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert "Serving" in server.stdout.readline()
        (folder / "features.py").touch()
        said = list(takewhile(lambda line: "Serving" not in line, server.stdout))
        server.terminate()
        rest = server.stdout.read()
    assert "Try in another terminal:\n" in said
    assert rest == ""


@pytest.mark.parametrize("name", ["features.py", "shop.features"])
def test_a_changed_file_restarts_the_server(folder: Path, start: Start, name: str) -> None:
    (folder / "shop").mkdir()
    (folder / "shop" / "__init__.py").touch()
    features = folder / name.replace("shop.features", "shop/features.py")
    features.write_text((folder / "features.py").read_text())
    server = start("serve", name, "--reload", "--port", "0")
    path = "/v1/features/shout?entity_id=u1"
    assert ask(server.next_line()["url"], "GET", path)[1]["value"] == "U1!"
    features.write_text(features.read_text().replace('"!"', '"?"'))
    assert ask(server.next_line()["url"], "GET", path)[1]["value"] == "U1?"
    ended = server.end()
    assert ended.code == 0
    assert "A file changed" in ended.err


def test_a_mistake_while_reloading_waits_for_the_next_change(folder: Path, start: Start) -> None:
    features = folder / "features.py"
    right = features.read_text()
    features.write_text("1 / 0\n")
    server = start("serve", "--reload", "--port", "0")
    said = server.errors_until("waiting for a file to change")
    assert "features.py:1: ZeroDivisionError" in said
    features.write_text(right)
    assert server.next_line()["url"]
    assert server.end(signal.SIGINT).code == 0


def test_a_server_keeps_the_last_good_file_while_a_changed_one_has_a_mistake(
    folder: Path, start: Start
) -> None:
    features, path = folder / "features.py", "/v1/features/shout?entity_id=u1"
    right = features.read_text()
    server = start("serve", "--reload", "--port", "0")
    url = server.next_line()["url"]
    features.write_text("1 / 0\n")
    said = server.errors_until("The server goes on without this change")
    assert "features.py:1: ZeroDivisionError" in said
    assert ask(url, "GET", path)[1]["value"] == "U1!"
    features.write_text(right.replace('"!"', '"?"'))
    assert ask(server.next_line()["url"], "GET", path)[1]["value"] == "U1?"
    assert server.end().code == 0


def test_a_port_in_use_is_an_error(start: Start, run: Run) -> None:
    url = start("serve", "--workers", "0", "--port", "0").next_line()["url"]
    port = str(urlsplit(url).port)
    refused = run("serve", "--port", port)
    assert refused.code == 1
    assert f"port {port} of 127.0.0.1 is in use" in refused.err


def test_a_server_that_fails_says_why_and_not_that_it_stopped(home: Path, run: Run) -> None:
    (home / "headwater.db").write_bytes(b"not a database")
    failed = run("serve", "--port", "0")
    assert failed.code == 1
    assert failed.err.startswith(f"error: the store in {home} is damaged")


def test_a_server_prints_its_url_and_a_first_command(
    folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(store: FeatureStore, **given: Any) -> None:
        given["on_ready"]("http://127.0.0.1:8000")

    monkeypatch.setattr("headwater.cli.serving.serve_http", serve)
    monkeypatch.setenv("HEADWATER_API_KEY", "sesame")
    said = run("serve", "--workers", "0").out
    assert "Serving features.py at http://127.0.0.1:8000 (data in .headwater)." in said
    assert ("Its web UI is at http://127.0.0.1:8000/\n" in said) is is_ui_installed()
    assert "start one: headwater worker features.py" in said
    assert "headwater events publish purchase ID KEY=VALUE --file features.py" in said
    assert "headwater features get total_spend ID --file features.py" in said
    assert "context" not in said
    assert "sesame" not in said


def test_a_server_whose_disk_is_full_is_not_ready(start: Start) -> None:
    # Nothing reads the log until the end, and a full pipe would block the server.
    server = start(
        "serve", "--port", "0", HEADWATER_LOG_LEVEL="error", HEADWATER_HTTP_ACCESS_LOG="0"
    )
    url = server.next_line()["url"]
    wait_until(lambda: ask(url, "GET", "/readyz")[0] == 200)
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, hard))
    wait_until(lambda: ask(url, "GET", "/readyz")[0] == 503)
    assert ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})[0] == 503
    assert ask(url, "GET", "/healthz")[0] == 200
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    wait_until(lambda: ask(url, "GET", "/readyz")[0] == 200)
    assert server.end().code == 0
