"""`make up` runs two servers for a developer, and their data stays."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import pytest
import redis

from headwater.settings.loading import load
from tests.test_servers import FATAL_CHECK, ROOT, is_listening

UP = (sys.executable, "-m", "dev.up")

UP_WITH_A_FATAL_CHECK = f"""
import sys
from pathlib import Path
import tests.servers
from dev.up import run
tests.servers.VECTOR_CHECK = {FATAL_CHECK!r}
run(Path(sys.argv[1]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that the account of the servers can reach, which pytest's own is not.

    Only one test at a time has one: the ports of `make up` are the same for all processes.
    """
    lock = Path(tempfile.gettempdir()) / f"headwater-up-{os.getuid()}.lock"
    with lock.open("w") as held, tempfile.TemporaryDirectory() as name:
        fcntl.flock(held, fcntl.LOCK_EX)
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def up(folder: Path) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """Both servers, and the variables that were printed."""
    with subprocess.Popen(
        [*UP, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        assert process.stderr
        lines = [process.stdout.readline() for _ in range(3)]
        assert all(line.startswith("export ") for line in lines), process.stderr.read()
        pairs = [line.removeprefix("export ").strip().split("=", 1) for line in lines]
        try:
            yield process, dict(pairs)
        finally:
            process.send_signal(signal.SIGINT)


def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [*UP, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def ask_postgres(url: str, sql: str) -> object:
    async def ask() -> object:
        connection = await asyncpg.connect(url)
        try:
            return await connection.fetchval(sql)
        finally:
            await connection.close()

    return asyncio.run(ask())


def test_acknowledged_writes_survive_a_restart_of_the_servers(folder: Path) -> None:
    with up(folder) as (process, variables):
        settings = load(variables, folder)
        assert settings.env == "production"
        with redis.Redis.from_url(settings.redis.url) as client:
            client.set("kept", "yes")
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
        ask_postgres(settings.postgres.url, "CREATE TABLE kept AS SELECT 7 AS number")
        assert ask_postgres(settings.postgres.url, "SHOW fsync") == "on"
        assert "Both servers stopped" in run(folder, "--stop").stderr
        assert process.wait(60) == os.EX_OK
        assert not is_listening(settings.redis.url)
        assert not is_listening(settings.postgres.url)
    with up(folder) as (_, variables):
        settings = load(variables, folder)
        with redis.Redis.from_url(settings.redis.url) as client:
            assert client.get("kept") == b"yes"
        assert ask_postgres(settings.postgres.url, "SELECT number FROM kept") == 7


def test_the_settings_are_printed_and_kept_in_a_file_and_the_folder_is_used_once(
    folder: Path,
) -> None:
    with up(folder) as (_, variables):
        assert variables.keys() == {
            "HEADWATER_ENV",
            "HEADWATER_REDIS_URL",
            "HEADWATER_POSTGRES_URL",
        }
        exports = (folder / "env").read_text()
        assert all(f"export {name}={value}\n" in exports for name, value in variables.items())
        again = run(folder)
        assert again.returncode == 1
        assert "`make down` stops them" in again.stderr
    assert "No servers run here." in run(folder, "--stop").stderr


def test_a_postgres_that_dies_of_vectors_is_reported_without_a_traceback(folder: Path) -> None:
    command = [sys.executable, "-c", UP_WITH_A_FATAL_CHECK, str(folder)]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Postgres died of a vector operation")
    assert "Traceback" not in refused.stderr
