"""Encrypted connections to Postgres, with certificates of a CA that the tests make."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from headwater.backends.postgres.pool import Connection, Postgres
from headwater.errors import BackendUnavailableError
from headwater.settings.groups import PostgresSettings, PostgresTlsSettings
from tests.engine.support import until
from tests.servers import restartable_postgres
from tests.tls import Authority, Certificate

WITH_CERTIFICATE = "hostssl all all 127.0.0.1/32 scram-sha-256 clientcert=verify-ca"
ENCRYPTED = "hostssl all all 127.0.0.1/32 scram-sha-256"
ANY = "host all all 127.0.0.1/32 scram-sha-256"
CREATE_ROLE = """
DO $$BEGIN CREATE ROLE app LOGIN PASSWORD 'app'; EXCEPTION WHEN duplicate_object THEN END$$
"""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with restartable_postgres() as (url, _):
        yield url


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Server:
    """A running Postgres whose certificate and rules of access a test sets."""

    def __init__(self, url: str) -> None:
        self._url = url

    async def use(self, own: Certificate, ca: Path, rule: str) -> None:
        loaded_at = await self._ask("SELECT pg_conf_load_time()")
        data = Path(await self._ask("SHOW data_directory"))
        # The administrator of the tests can always connect.
        rules = f"host all postgres 127.0.0.1/32 scram-sha-256\n{rule}\n"
        files = {"server.crt": own.cert, "server.key": own.key, "clients.crt": ca}
        texts = {name: file.read_text() for name, file in files.items()} | {"pg_hba.conf": rules}
        for name, text in texts.items():
            _write(data / name, text)
        await self._ask("ALTER SYSTEM SET ssl_ca_file = 'clients.crt'")
        await self._ask("ALTER SYSTEM SET ssl = on")
        await self._ask(CREATE_ROLE)
        await self._ask("SELECT pg_reload_conf()")

        async def is_loaded() -> bool:
            return bool(await self._ask("SELECT pg_conf_load_time()") != loaded_at)

        await until(is_loaded)

    async def _ask(self, statement: str) -> Any:
        connection = await asyncpg.connect(self._url, ssl="disable")
        try:
            return await connection.fetchval(statement)
        finally:
            await connection.close()

    def pool(self, host: str = "127.0.0.1", options: str = "", **tls: Any) -> Postgres:
        place = self._url.rpartition("@")[2].replace("127.0.0.1", host)
        chosen: Any = {name: str(value) for name, value in tls.items()}
        return Postgres(
            PostgresSettings(
                url=f"postgresql://app:app@{place}{options}",
                schema="public",
                tls=PostgresTlsSettings(**chosen),
            )
        )


def _write(file: Path, text: str) -> None:
    """Write a file for the account that the server runs as."""
    file.write_text(text)
    file.chmod(0o600)
    shutil.chown(file, file.parent.owner(), file.parent.group())


@pytest.fixture
def server(url: str) -> Server:
    return Server(url)


async def described(connection: Connection) -> tuple[bool, str | None]:
    """Return whether the connection is encrypted, and the name in the client's certificate."""
    row = await connection.fetchrow(
        "SELECT ssl, client_dn FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
    )
    assert row
    return row["ssl"], row["client_dn"]


async def refusal(pool: Postgres) -> str:
    with pytest.raises(BackendUnavailableError) as caught:
        await pool.run(described)
    await pool.close()
    return str(caught.value)


async def test_both_sides_show_a_certificate_that_is_read_again(
    server: Server, authority: Authority
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, WITH_CERTIFICATE)
    own = authority.issue("first", file="own")
    pool = server.pool(ca_file=authority.file, cert_file=own.cert, key_file=own.key)
    assert await pool.run(described) == (True, "/CN=first")
    authority.issue("second", file="own")

    async def end(connection: Connection) -> None:
        connection.terminate()

    await pool.run(end)
    assert await pool.run(described) == (True, "/CN=second")
    await pool.close()


@pytest.mark.parametrize(
    ("mode", "is_encrypted"),
    [("disable", False), ("allow", False), ("prefer", True), ("require", True), ("", True)],
)
async def test_a_mode_without_a_ca_encrypts_as_that_of_libpq(
    server: Server, authority: Authority, mode: str, is_encrypted: bool
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, ANY)
    pool = server.pool(mode=mode)
    assert await pool.run(described) == (is_encrypted, None)
    await pool.close()


@pytest.mark.parametrize(
    ("hosts", "days", "mode", "said"),
    [
        (["db"], 30, "verify-full", "for another name"),
        (["db"], 30, "verify-ca", ""),
        (["127.0.0.1"], 30, "verify-full", ""),
        (["127.0.0.1"], -1, "verify-ca", "not valid now .*expired"),
        (["127.0.0.1"], 30, "", ""),
        (["db"], 30, "", "for another name"),
    ],
)
async def test_the_modes_that_verify_do(
    server: Server, authority: Authority, hosts: list[str], days: float, mode: str, said: str
) -> None:
    await server.use(authority.issue("server", *hosts, days=days), authority.file, ENCRYPTED)
    pool = server.pool(mode=mode, ca_file=authority.file)
    if said:
        assert re.search(said, await refusal(pool))
    else:
        assert await pool.run(described) == (True, None)
        await pool.close()


async def test_the_mode_of_the_url_holds_where_the_setting_has_none(
    server: Server, authority: Authority
) -> None:
    await server.use(authority.issue("server", "db"), authority.file, ENCRYPTED)
    pool = server.pool(options="?sslmode=verify-ca", ca_file=authority.file)
    assert await pool.run(described) == (True, None)
    await pool.close()


async def test_what_is_refused_is_an_error_with_its_remedy(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, WITH_CERTIFICATE)
    other = Authority(tmp_path, "other")
    stranger = other.issue("stranger")
    error = await refusal(server.pool(ca_file=other.file))
    assert re.search(r"not from a trusted CA .*; set postgres\.tls\.ca_file", error)
    error = await refusal(server.pool(ca_file=authority.file))
    assert "requires a valid client certificate" in error
    assert "set postgres.tls.cert_file and postgres.tls.key_file" in error
    shown: dict[str, Any] = {"cert_file": stranger.cert, "key_file": stranger.key}
    error = await refusal(server.pool(ca_file=authority.file, **shown))
    # The alert may be lost with the connection, which the server closes at once.
    assert "accept the certificate in postgres.tls.cert_file" in error or "see its log" in error
    error = await refusal(server.pool(ca_file=tmp_path / "none.pem"))
    assert re.search(r"none\.pem cannot be read .*; correct postgres\.tls", error)
