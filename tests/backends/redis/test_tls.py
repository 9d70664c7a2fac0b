"""Encrypted connections to Redis, with certificates of a CA that the tests make."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.backends.redis.client import Redis, command
from headwater.backends.redis.inspection import inspect
from headwater.core import tls as tls_files
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError
from headwater.settings.schema import Settings
from headwater.settings.servers import RedisSettings, TlsSettings
from tests.servers import valkey_node
from tests.tls import Authority, Certificate, TlsProxy, server_context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with valkey_node() as port:
        yield port


@asynccontextmanager
async def client(port: int, patience: float = 30, **tls: Any) -> AsyncIterator[Redis]:
    url = f"rediss://127.0.0.1:{port}/0"
    redis = Redis.of(
        RedisSettings(url=url, timeout=30, connect_timeout=patience, tls=TlsSettings(**tls))
    )
    try:
        yield redis
    finally:
        await redis.close()


async def refusal(port: int, **tls: Any) -> str:
    """Return the error of a client that cannot connect."""
    async with client(port, **tls) as redis:
        with pytest.raises(BackendUnavailableError) as caught:
            await redis.open()
    return str(caught.value)


async def test_both_sides_show_a_certificate(authority: Authority, port: int) -> None:
    server = authority.issue("server", "127.0.0.1")
    own = authority.issue("worker-1")
    proxy = TlsProxy(server_context(server, authority.file), port)
    tls: dict[str, Any] = {"ca_file": authority.file, "cert_file": own.cert, "key_file": own.key}
    with proxy.open() as encrypted:
        async with client(encrypted, **tls) as redis:
            await redis.open()
            assert await redis.call(command("k", "ECHO", "secret")) == b"secret"
    assert proxy.names == ["worker-1"]


async def test_certificates_are_read_again_for_every_connection(
    authority: Authority, port: int
) -> None:
    context = server_context(authority.issue("server", "127.0.0.1"), authority.file)
    own = authority.issue("first", file="own")
    proxy = TlsProxy(context, port)
    tls: dict[str, Any] = {"ca_file": authority.file, "cert_file": own.cert, "key_file": own.key}
    with proxy.open() as encrypted:
        async with client(encrypted, **tls) as redis:
            await redis.open()
            authority.issue("second", file="own")
            (connection,) = redis.connections.values()
            connection.close()
            await connection.closed
            await redis.call(command("k", "PING"))
    assert proxy.names == ["first", "second"]


async def test_a_ca_that_is_replaced_is_trusted_by_new_connections(
    tmp_path: Path, port: int
) -> None:
    old, trusted = Authority(tmp_path, "old"), tmp_path / "trusted.pem"
    trusted.write_bytes(old.file.read_bytes())
    context = server_context(old.issue("server", "127.0.0.1"))
    with TlsProxy(context, port).open() as encrypted:
        async with client(encrypted, ca_file=trusted) as redis:
            await redis.open()
            new = Authority(tmp_path, "new")
            renewed = new.issue("server", "127.0.0.1")
            context.load_cert_chain(renewed.cert, renewed.key)
            (connection,) = redis.connections.values()
            connection.close()
            await connection.closed
            with pytest.raises(BackendUnavailableError, match="not from a trusted CA"):
                await redis.call(command("k", "PING"))
            trusted.write_bytes(old.file.read_bytes() + new.file.read_bytes())
            assert await redis.call(command("k", "PING")) == b"PONG"


@pytest.mark.parametrize(
    ("hosts", "days", "tls", "said"),
    [
        (["127.0.0.1"], 30, {}, "not from a trusted CA.*; set redis.tls.ca_file to the certif"),
        (["127.0.0.1"], -1, {"ca_file": "ca.pem"}, "not valid now .*expired.*; renew it there"),
        (["db"], 30, {"ca_file": "ca.pem"}, "for another name .*; use the name .*server_name"),
        (["127.0.0.1"], 30, {"ca_file": "none.pem"}, "none.pem cannot be read .*; correct redis.t"),
        (["127.0.0.1"], 30, {"ca_file": "server.key"}, "a file of redis.tls is not PEM"),
    ],
    ids=["unknown CA", "expired", "other name", "missing file", "not a certificate"],
)
async def test_a_refused_server_is_an_error_with_its_remedy(
    authority: Authority,
    tmp_path: Path,
    port: int,
    hosts: list[str],
    days: float,
    tls: dict[str, str],
    said: str,
) -> None:
    server = authority.issue("server", *hosts, days=days)
    files = {name: str(tmp_path / file) for name, file in tls.items()}
    with TlsProxy(server_context(server), port).open() as encrypted:
        error = await refusal(encrypted, **files)
    assert re.search(said, error), error


async def test_a_name_or_the_check_can_be_set(authority: Authority, port: int) -> None:
    server = authority.issue("server", "db.example.com")
    with TlsProxy(server_context(server), port).open() as encrypted:
        async with client(encrypted, ca_file=authority.file, server_name="db.example.com") as redis:
            await redis.open()
        async with client(encrypted, verify=False) as redis:
            await redis.open()


async def test_a_refused_client_is_an_error_with_its_remedy(
    authority: Authority, tmp_path: Path, port: int
) -> None:
    context = server_context(authority.issue("server", "127.0.0.1"), authority.file)
    stranger = Authority(tmp_path, "other").issue("stranger")
    late = authority.issue("late", days=-1)
    mixed = Certificate(stranger.cert, late.key)
    with TlsProxy(context, port).open() as encrypted:

        async def refused(shown: Certificate | None) -> str:
            files = {"cert_file": shown.cert, "key_file": shown.key} if shown else {}
            return await refusal(encrypted, ca_file=authority.file, **files)

        assert "set redis.tls.cert_file and redis.tls.key_file" in await refused(None)
        assert "does not accept the certificate in redis.tls.cert_file" in await refused(stranger)
        assert "does not accept the certificate in redis.tls.cert_file" in await refused(late)
        assert "key_file is not the key of redis.tls.cert_file" in await refused(mixed)


async def test_a_port_without_tls_is_named(port: int) -> None:
    # Valkey waits for the end of the line that it takes the handshake for.
    assert "check that it is running and speaks TLS on this port" in await refusal(port, patience=1)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_versions_before_1_2_are_refused(authority: Authority, port: int) -> None:
    context = server_context(authority.issue("server", "127.0.0.1"))
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with TlsProxy(context, port).open() as encrypted:
        assert "1.2 or newer" in await refusal(encrypted, ca_file=authority.file)


async def test_a_store_publishes_and_reads_over_tls(
    authority: Authority, production: Settings
) -> None:
    redis = urlsplit(production.redis.url)
    assert redis.port
    server, own = authority.issue("server", "127.0.0.1"), authority.issue("worker")
    proxy = TlsProxy(server_context(server, authority.file), redis.port)
    with proxy.open() as encrypted:
        files = {"ca_file": authority.file, "cert_file": own.cert, "key_file": own.key}
        url = redis._replace(scheme="rediss", netloc=f"127.0.0.1:{encrypted}").geturl()
        store = FeatureStore(settings=production.replace(redis={"url": url, "tls": files}))

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="visit")
        async def visits(user_id: str, event: ServiceEvent) -> int:
            return 1

        async with store:
            await store.publish("visit", "ada")
            await store.drain()
            assert await store.get_feature("visits", "ada") == 1


@pytest.mark.parametrize(
    ("scheme", "verify", "severity", "told"),
    [
        ("redis", True, "warning", "not encrypted"),
        ("rediss", False, "warning", "unchecked"),
        ("rediss", True, "ok", "is checked"),
    ],
)
async def test_the_doctor_warns_of_a_server_elsewhere_that_is_not_checked(
    authority: Authority,
    port: int,
    scheme: str,
    verify: bool,
    severity: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def seen(port: int, env: str) -> list[tuple[str, str]]:
        tls = {"ca_file": authority.file, "verify": verify}
        redis = {"url": f"{scheme}://127.0.0.1:{port}/0", "tls": tls}
        findings = await inspect(Settings().replace(env=env, redis=redis), SystemClock())
        return [(each.severity, each.found) for each in findings if each.check == "encryption"]

    proxy = TlsProxy(server_context(authority.issue("server", "127.0.0.1")), port)
    with proxy.open() as encrypted:
        used = encrypted if scheme == "rediss" else port
        assert await seen(used, "production") == []
        monkeypatch.setattr(tls_files, "is_on_this_machine", lambda _: False)
        [(shown, text)] = await seen(used, "production")
        assert shown == severity
        assert told in text
        assert await seen(used, "development") == []
