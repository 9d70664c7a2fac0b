"""A server that runs out of file descriptors refuses connections and goes on."""

import resource
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.cli.conftest import Run, Start, wait_until
from tests.cli.test_serving import ask

LIMIT = 128
IDLE = 200


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


@contextmanager
def limited_server() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve with a low limit of open files, which the process cannot raise."""
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--json"]
    with (
        Path("log").open("w") as log,
        subprocess.Popen(
            ["sh", "-c", f'ulimit -n {LIMIT} && exec "$@"', "sh", *command],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as server,
    ):
        try:
            assert server.stdout
            yield server, msgspec.json.decode(server.stdout.readline())["url"]
        finally:
            server.kill()


def refused(connections: list[socket.socket]) -> list[socket.socket]:
    """Return the connections that the server has answered or closed."""
    readable, _, _ = select.select(connections, [], [], 0.1)
    return readable


@pytest.mark.usefixtures("folder")
def test_idle_connections_beyond_the_limit_are_refused_and_events_are_handled(run: Run) -> None:
    with limited_server() as (server, url), ExitStack() as opened:
        connections = [
            opened.enter_context(socket.create_connection(address_of(url), timeout=30))
            for _ in range(IDLE)
        ]
        wait_until(lambda: len(refused(connections)) >= IDLE - LIMIT)
        answer = refused(connections)[0].recv(10_000).decode()
        assert answer.startswith("HTTP/1.1 503 ")
        assert "urn:headwater:problem:too-many-connections" in answer
        assert run("events", "publish", "visit", "u1").code == 0
        wait_until(lambda: run("features", "get", "visits", "u1", "--json").json[0]["value"] == 1)
        assert server.poll() is None
        opened.close()
        wait_until(lambda: is_served(url))
        server.terminate()
        assert server.wait(30) == 0


def is_served(url: str) -> bool:
    try:
        return ask(url, "GET", "/healthz")[0] == 200
    except OSError:
        return False


def test_a_worker_without_descriptors_retries_until_it_has_some(start: Start) -> None:
    server = start("serve", "--port", "0")
    url = server.next_line()["url"]
    server.errors_until('"event":"worker started"')
    soft, hard = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
    assert soft == hard
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (1, hard))
    assert "too many open files" in server.errors_until('"event":"heartbeat failed; retrying"')
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
    server.errors_until('"event":"back after an outage"')
    assert ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})[0] == 202
    wait_until(lambda: ask(url, "GET", "/v1/features/visits?entity_id=u1")[1]["value"] == 1)
    assert server.end().code == 0
