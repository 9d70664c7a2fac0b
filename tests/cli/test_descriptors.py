"""Servers without enough file descriptors, or without those of the standard streams."""

import http.client
import os
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

from tests.cli.conftest import Process, Run, Start, wait_until
from tests.cli.test_serve_processes import children
from tests.cli.test_serving import ask
from tests.servers import quiet_port

LIMIT = 128
IDLE = 200
KEY = "a key for the attack"


def address_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname
    assert parts.port
    return parts.hostname, parts.port


@contextmanager
def limited_server(limit: int, **environment: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Serve with a low limit of open files, which the process cannot raise."""
    command = [sys.executable, "-m", "headwater", "serve", "--port", "0", "--json"]
    with (
        Path("log").open("w") as log,
        subprocess.Popen(
            ["sh", "-c", f'ulimit -n {limit} && exec "$@"', "sh", *command],
            env=os.environ | {"HEADWATER_HTTP_HEAD_TIMEOUT": "600"} | environment,
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
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    readable = {descriptor for descriptor, _ in poll.poll(100)}
    return [each for each in connections if each.fileno() in readable]


@pytest.mark.usefixtures("folder")
def test_idle_connections_beyond_the_limit_are_refused_and_events_are_handled(run: Run) -> None:
    with limited_server(LIMIT) as (server, url), ExitStack() as opened:
        connections = [
            opened.enter_context(connect(url, f"127.0.0.{2 + number % 10}"))
            for number in range(IDLE)
        ]
        wait_until(lambda: len(refused(connections)) >= IDLE - LIMIT)
        answer = refused(connections)[0].recv(10_000).decode()
        assert answer.startswith("HTTP/1.1 503 ")
        assert "urn:headwater:problem:too-many-connections" in answer
        assert "as many as its limit of open files allows" in answer
        assert run("events", "publish", "visit", "u1").code == 0
        wait_until(lambda: run("features", "get", "visits", "u1", "--json").json[0]["value"] == 1)
        assert server.poll() is None
        opened.close()
        wait_until(lambda: is_served(url))
        server.terminate()
        assert server.wait(60) == 0


@pytest.mark.usefixtures("folder")
def test_a_thousand_idle_connections_of_one_address_do_not_keep_others_out() -> None:
    with (
        many_descriptors(),
        limited_server(1_024, HEADWATER_API_KEY=KEY) as (server, url),
        ExitStack() as opened,
    ):
        connections = [opened.enter_context(connect(url, "127.0.0.1")) for _ in range(1_100)]
        wait_until(lambda: len(refused(connections)) >= 1_100 - 384)
        assert "127.0.0.1 has 384 open connections" in refused(connections)[0].recv(10_000).decode()
        assert ask_from("127.0.0.2", url, "POST", "/ingest/visit", '{"entity_id": "u1"}')[0] == 202
        value = "/v1/features/visits?entity_id=u1"
        wait_until(lambda: '"value":1,' in ask_from("127.0.0.2", url, "GET", value)[1])
        server.terminate()
        assert server.wait(60) == 0


@contextmanager
def many_descriptors() -> Iterator[None]:
    """Let this process open as many files as the system allows."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def connect(url: str, source: str) -> socket.socket:
    return socket.create_connection(address_of(url), timeout=60, source_address=(source, 0))


def ask_from(
    source: str, url: str, method: str, path: str, body: str | None = None
) -> tuple[int, str]:
    """Send a request with the key from an address of this machine."""
    host, port = address_of(url)
    connection = http.client.HTTPConnection(host, port, timeout=60, source_address=(source, 0))
    connection.request(method, path, body, {"X-API-Key": KEY})
    try:
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


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
    # Any part of the worker may be the first to notice, and only that one logs it.
    noticed = server.errors_until("too many open files").splitlines()[-1]
    assert '; retrying"' in noticed
    resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (hard, hard))
    server.errors_until('"event":"back after an outage"')
    assert ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})[0] == 202
    wait_until(lambda: ask(url, "GET", "/v1/features/visits?entity_id=u1")[1]["value"] == 1)
    assert server.end().code == 0


def without_streams(closed: str, *arguments: str) -> Process:
    """Start a command with redirections that close some of its standard streams."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "headwater"]
    return Process(subprocess.Popen([*command, *arguments], text=True))


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("closed", "processes"), [("<&-", "2"), ("<&- >&- 2>&-", "1")])
def test_a_server_without_standard_streams_handles_events_and_stops_in_order(
    closed: str, processes: str
) -> None:
    port = str(quiet_port())
    options = ("--port", port, "--processes", processes, "--workers", "1")
    url, server = f"http://127.0.0.1:{port}", without_streams(closed, "serve", *options)
    try:
        wait_until(lambda: is_served(url))
        assert ask(url, "POST", "/ingest/visit", {"entity_id": "u1"})[0] == 202
        wait_until(lambda: ask(url, "GET", "/v1/features/visits?entity_id=u1")[1]["value"] == 1)
        for pid in (server.pid, *children(server)):
            opened = {
                os.readlink(f"/proc/{pid}/fd/{number}") for number in range(1 + closed.count(" "))
            }
            assert opened == {os.devnull}
        assert server.end().code == 0
    finally:
        server.kill()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("closed", "command", "code"),
    [
        ("<&-", ["mcp"], 0),
        ("2>&-", ["check"], 0),
        ("<&- >&- 2>&-", ["worker", "missing.py"], 1),
    ],
)
def test_commands_without_standard_streams_end_in_order(
    closed: str, command: list[str], code: int
) -> None:
    assert without_streams(closed, *command).end(None).code == code
