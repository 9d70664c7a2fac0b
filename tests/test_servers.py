"""The launcher gives real servers and leaves nothing behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import redis

from tests.servers import (
    ServerStartError,
    postgres,
    restartable_postgres,
    restartable_valkey,
    valkey,
)

# Ends the backend as an instruction that the CPU does not have.
FATAL_CHECK = "COPY (SELECT 1) TO PROGRAM 'kill -s ILL $PPID'"

GONE_WITHIN_SECONDS = 60.0
POLL_SECONDS = 0.05
ROOT = Path(__file__).parent.parent

KILLED_INSIDE_THE_BLOCK = """
import os, signal
from tests.servers import {server}
with {server}() as url:
    os.write(1, url.encode())
    os.kill(os.getpid(), signal.SIGKILL)
"""


KILLED_WHILE_THE_SERVER_IS_DOWN = """
import os, signal
from tests.servers import restartable_valkey
with restartable_valkey() as (url, machine):
    machine.kill()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def no_configured_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWATER_TEST_REDIS_URL", raising=False)
    monkeypatch.delenv("HEADWATER_TEST_POSTGRES_URL", raising=False)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that any account can reach, which pytest's own is not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_valkey_answers_and_is_gone_afterwards() -> None:
    with valkey() as url, redis.Redis.from_url(url) as client:
        assert client.ping()
    assert not is_listening(url)


async def test_postgres_answers_with_vectors_and_is_gone_afterwards() -> None:
    with postgres() as url:
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT 1") == 1
        await connection.execute("CREATE EXTENSION vector")
        assert await connection.fetchval("SELECT '[1,2]'::vector <-> '[1,5]'::vector") == 3
        await connection.close()
    assert not is_listening(url)


def test_a_postgres_that_dies_of_vectors_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, public_folder: Path
) -> None:
    monkeypatch.setattr("tests.servers.VECTOR_CHECK", FATAL_CHECK)
    monkeypatch.setattr(tempfile, "tempdir", str(public_folder))
    with (
        pytest.raises(
            ServerStartError, match=r"not built for this CPU.*HEADWATER_TEST_POSTGRES_URL"
        ),
        postgres(),
    ):
        pytest.fail("a server that cannot be used was given")
    assert not any(public_folder.iterdir())


async def test_postgres_stops_although_a_connection_is_open() -> None:
    with postgres() as url:
        connection = await asyncpg.connect(url)
    assert not is_listening(url)
    connection.terminate()


def test_two_servers_run_side_by_side() -> None:
    with valkey() as one, valkey() as other:
        assert is_listening(one)
        assert is_listening(other)
        assert one != other


def test_a_killed_valkey_has_everything_when_it_is_started_again() -> None:
    with restartable_valkey() as (url, machine):
        with redis.Redis.from_url(url) as client:
            client.set("kept", "yes")
        machine.kill()
        assert not is_listening(url)
        machine.start()
        with redis.Redis.from_url(url) as client:
            assert client.get("kept") == b"yes"
    assert not is_listening(url)


async def test_a_stopped_postgres_has_everything_when_it_is_started_again() -> None:
    with restartable_postgres() as (url, machine):
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
        machine.stop()
        connection.terminate()
        assert not is_listening(url)
        machine.start()
        connection = await asyncpg.connect(url)
        assert await connection.fetchval("SELECT one FROM kept") == 1
        await connection.close()
    assert not is_listening(url)


def test_a_run_that_is_killed_while_its_server_is_down_leaves_no_folder(
    public_folder: Path,
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_WHILE_THE_SERVER_IS_DOWN],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(public_folder)},
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: not any(public_folder.iterdir()))


@pytest.mark.parametrize("server", ["valkey", "postgres"])
def test_a_killed_test_run_leaves_no_server_and_no_folder(server: str, public_folder: Path) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_INSIDE_THE_BLOCK.format(server=server)],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(public_folder)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert killed.stdout
    wait_until(lambda: not is_listening(killed.stdout))
    wait_until(lambda: not any(public_folder.iterdir()))


@pytest.mark.parametrize(
    ("server", "variable"),
    [(valkey, "HEADWATER_TEST_REDIS_URL"), (postgres, "HEADWATER_TEST_POSTGRES_URL")],
)
def test_a_configured_server_is_used_instead(
    server: Callable[[], AbstractContextManager[str]],
    variable: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(variable, "scheme://elsewhere")
    with server() as url:
        assert url == "scheme://elsewhere"


def is_listening(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as probe:
        return probe.connect_ex((str(address.hostname), address.port or 0)) == 0


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + GONE_WITHIN_SECONDS
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(POLL_SECONDS)
