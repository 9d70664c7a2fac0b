"""The API by HTTPS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from headwater import FeatureStore
from headwater.client import AsyncClient
from headwater.doctor.examination import examine
from headwater.errors import ConfigError, ServerUnreachableError
from headwater.http.server.processes import serve
from headwater.settings.schema import Settings
from tests.engine.support import until
from tests.http.conftest import KEY, MakeStore
from tests.tls import Authority, Certificate


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(store: FeatureStore, own: Certificate) -> AsyncIterator[str]:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    files = (str(own.cert), str(own.key))
    server = asyncio.create_task(
        serve(store, host="127.0.0.1", port=0, worker=False, on_ready=ready.set_result, tls=files)
    )
    first: set[asyncio.Future[Any]] = {server, ready}
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    if server.done():
        server.result()
    yield ready.result()
    server.cancel()
    with suppress(asyncio.CancelledError):
        await server


def shown(url: str, **versions: Any) -> tuple[str, bytes]:
    """Return the version of TLS that is spoken and the certificate that is shown."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for name, version in versions.items():
        setattr(context, name, version)
    host, _, port = url.removeprefix("https://").rpartition(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain) as secure:
        return secure.version() or "", secure.getpeercert(binary_form=True) or b""


async def test_a_client_that_trusts_the_ca_calls_the_api(
    store: FeatureStore, authority: Authority
) -> None:
    async with serving(store, authority.issue("server", "127.0.0.1")) as url:
        assert url.startswith("https://127.0.0.1:")
        async with AsyncClient(url, key=KEY, ca_file=authority.file) as client:
            assert await client.admin.is_alive()
        async with AsyncClient(url, key=KEY, retries=0) as client:
            with pytest.raises(ServerUnreachableError, match=r"trusted CA.*set client\.ca_file"):
                await client.admin.is_alive()


async def test_a_changed_certificate_is_shown_to_new_connections(
    store: FeatureStore, authority: Authority
) -> None:
    own = authority.issue("server", "127.0.0.1")
    trusted: dict[str, Any] = {"key": KEY, "ca_file": authority.file}
    async with serving(store, own) as url, AsyncClient(url, **trusted) as client:
        assert await client.admin.is_alive()
        before = await certificate(url)
        # Half of a file changes nothing.
        own.key.write_text("half of a key")
        assert await certificate(url) == before
        authority.issue("server", "127.0.0.1")

        async def is_new() -> bool:
            return await certificate(url) != before

        await until(is_new)
        assert await client.admin.is_alive()


async def certificate(url: str) -> bytes:
    return (await asyncio.to_thread(shown, url))[1]


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
async def test_old_versions_and_plain_requests_are_refused(
    store: FeatureStore, authority: Authority
) -> None:
    async with serving(store, authority.issue("server", "127.0.0.1")) as url:
        limit = {"maximum_version": ssl.TLSVersion.TLSv1_2}
        assert (await asyncio.to_thread(shown, url))[0] == "TLSv1.3"
        assert (await asyncio.to_thread(lambda: shown(url, **limit)))[0] == "TLSv1.2"
        old = {"minimum_version": ssl.TLSVersion.TLSv1, "maximum_version": ssl.TLSVersion.TLSv1_1}
        with pytest.raises(OSError, match=r"(?i)ssl|reset|eof"):
            await asyncio.to_thread(lambda: shown(url, **old))
        async with AsyncClient(url.replace("https", "http"), key=KEY, retries=0) as client:
            with pytest.raises(ServerUnreachableError):
                await client.admin.is_alive()
        assert (await asyncio.to_thread(shown, url))[0] == "TLSv1.3"


async def test_clients_that_do_not_finish_the_handshake_are_disconnected(
    make_store: MakeStore, authority: Authority
) -> None:
    store = make_store(http={"head_timeout": 1})
    async with serving(store, authority.issue("server", "127.0.0.1")) as url:
        host, _, port = url.removeprefix("https://").rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # The beginning of a record: handshake, of 512 bytes.
        writer.write(b"\x16\x03\x01\x02\x00")
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                assert await reader.read() == b""
        writer.close()
        async with AsyncClient(url, key=KEY, ca_file=authority.file) as client:
            assert await client.admin.is_alive()


async def test_files_that_do_not_fit_are_named(store: FeatureStore, authority: Authority) -> None:
    one, other = authority.issue("one"), authority.issue("other")
    for files, said in (
        (Certificate(one.cert, other.key), "is not the key of"),
        (Certificate(one.cert, one.key.with_name("none")), "none cannot be read"),
        (Certificate(one.key, one.key), "not PEM"),
    ):
        with pytest.raises(ConfigError, match=said):
            async with serving(store, files):
                pass
    with pytest.raises(ConfigError, match=r"client\.ca_file cannot be used: .*none\.pem"):
        await AsyncClient("https://db", ca_file="none.pem").admin.is_alive()


async def test_doctor_names_certificates_that_expire(authority: Authority, tmp_path: Path) -> None:
    soon, late = authority.issue("soon", days=5), authority.issue("late", days=-1)
    settings = Settings().replace(
        home=tmp_path / "home",
        redis={"tls": {"cert_file": soon.cert, "ca_file": authority.file}},
        postgres={"tls": {"cert_file": late.cert}},
        http={"tls": {"cert_file": tmp_path / "none.pem"}},
    )
    findings = await certificate_findings(settings)
    assert findings == {
        "redis.tls.ca_file": "ok",
        "redis.tls.cert_file": "warning",
        "postgres.tls.cert_file": "error",
        "http.tls.cert_file": "error",
    }


async def certificate_findings(settings: Settings) -> dict[str, str]:
    async with FeatureStore(settings=settings) as store:
        report = await examine(store)
    return {
        finding.looked_at: finding.severity
        for finding in report.findings
        if finding.check == "certificate"
    }
