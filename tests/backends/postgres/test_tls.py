"""Encrypted connections to Postgres, with certificates of a CA that the tests make."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import pytest
from cryptography.hazmat.primitives import serialization

from headwater.backends.postgres.connections import Connection
from headwater.backends.postgres.inspection import inspect
from headwater.backends.postgres.pool import Postgres
from headwater.core import tls as tls_files
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError, ConfigError
from headwater.settings.schema import Settings
from headwater.settings.servers import PostgresSettings, PostgresTlsSettings
from tests.engine.support import until
from tests.servers import restartable_postgres
from tests.tls import Authority, Certificate

pytestmark = pytest.mark.direct

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

    async def use(self, own: Certificate, ca: Path, rule: str, newest: str = "") -> None:
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
        await self._ask(f"ALTER SYSTEM SET ssl_max_protocol_version = '{newest}'")
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
        return Postgres(self.settings(host, options, **tls))

    def settings(self, host: str = "127.0.0.1", options: str = "", **tls: Any) -> PostgresSettings:
        place = self._url.rpartition("@")[2].replace("127.0.0.1", host)
        chosen: Any = {name: str(value) for name, value in tls.items()}
        return PostgresSettings(
            url=f"postgresql://app:app@{place}{options}",
            schema="public",
            tls=PostgresTlsSettings(**chosen),
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


async def test_a_ca_that_is_replaced_is_trusted_by_new_connections(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes())
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, ENCRYPTED)
    pool = server.pool(ca_file=trusted)
    assert await pool.run(described) == (True, None)
    await server.use(other.issue("server", "127.0.0.1"), authority.file, ENCRYPTED)

    async def end(connection: Connection) -> None:
        connection.terminate()

    await pool.run(end)
    with pytest.raises(BackendUnavailableError, match="not from a trusted CA"):
        await pool.run(described)
    trusted.write_bytes(other.file.read_bytes())
    assert await pool.run(described) == (True, None)
    await pool.close()


async def test_a_certificate_that_was_revoked_is_refused(
    server: Server, authority: Authority
) -> None:
    own = authority.issue("server", "127.0.0.1")
    await server.use(own, authority.file, ENCRYPTED)
    pool = server.pool(ca_file=authority.file, crl_file=authority.revoke())
    assert await pool.run(described) == (True, None)
    await pool.close()
    error = await refusal(server.pool(ca_file=authority.file, crl_file=authority.revoke(own)))
    assert "revoked" in error


async def test_a_key_may_have_a_password(
    server: Server, authority: Authority, tmp_path: Path
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, WITH_CERTIFICATE)
    own = authority.issue("worker")
    key = serialization.load_pem_private_key(own.key.read_bytes(), None)
    locked = tmp_path / "locked.key"
    locked.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"s3cret"),
        )
    )
    shown: dict[str, Any] = {"ca_file": authority.file, "cert_file": own.cert, "key_file": locked}
    pool = server.pool(**shown, key_password="s3cret")
    assert await pool.run(described) == (True, "/CN=worker")
    await pool.close()
    assert "key needs another password" in await refusal(server.pool(**shown, key_password="x"))


async def test_an_older_version_of_tls_than_the_setting_is_refused(
    server: Server, authority: Authority
) -> None:
    own = authority.issue("server", "127.0.0.1")
    await server.use(own, authority.file, ENCRYPTED, newest="TLSv1.2")
    pool = server.pool(ca_file=authority.file)
    assert await pool.run(described) == (True, None)
    await pool.close()
    error = await refusal(server.pool(ca_file=authority.file, min_version="TLSv1.3"))
    assert "no version of TLS that is allowed" in error


async def test_the_cas_of_the_system_are_a_file(
    server: Server, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, ENCRYPTED)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    pool = server.pool(ca_file="system")
    assert await pool.run(described) == (True, None)
    await pool.close()
    monkeypatch.setenv("SSL_CERT_FILE", str(Authority(tmp_path, "other").file))
    assert "not from a trusted CA" in await refusal(server.pool(ca_file="system"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="the system has no file of its CAs"):
        server.pool(ca_file="system")


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


@pytest.mark.parametrize(
    ("mode", "severity", "told"),
    [
        ("disable", "warning", "not encrypted"),
        ("", "warning", "unchecked"),
        ("verify-full", "ok", "is checked"),
    ],
)
async def test_the_doctor_warns_of_a_server_elsewhere_that_is_not_checked(
    server: Server,
    authority: Authority,
    mode: str,
    severity: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await server.use(authority.issue("server", "127.0.0.1"), authority.file, ANY)
    tls = {"mode": mode, "ca_file": authority.file} if mode == "verify-full" else {"mode": mode}
    postgres = server.settings(**tls)
    development = msgspec.structs.replace(Settings(), postgres=postgres)
    production = msgspec.structs.replace(development, env="production")

    async def seen(settings: Settings) -> list[tuple[str, str]]:
        findings = await inspect(settings, SystemClock())
        return [(each.severity, each.found) for each in findings if each.check == "encryption"]

    assert await seen(production) == []
    monkeypatch.setattr(tls_files, "is_on_this_machine", lambda _: False)
    [(shown, text)] = await seen(production)
    assert shown == severity
    assert told in text
    assert await seen(development) == []
