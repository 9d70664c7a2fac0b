"""Headers of responses: request ids, caching, compression and cross-origin requests."""

import gzip
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.errors import ConfigError
from headwater.settings.schema import Settings
from tests.http.conftest import MakeStore, client_of, problem_of

FOREVER = "private, max-age=31536000, immutable"
PAGE = "https://app.example.com"


async def test_a_request_gets_an_id_of_its_own(client: httpx.AsyncClient) -> None:
    first, second = [await client.get("/healthz") for _ in range(2)]
    ids = [each.headers["x-request-id"] for each in (first, second)]
    assert ids[0] != ids[1]
    assert all(re.fullmatch(r"[0-9a-f]{8}-[0-9]+", each) for each in ids)


@pytest.mark.parametrize("given", ["a", "web-1.2_3", "x" * 64])
async def test_the_id_that_a_client_sends_is_kept(client: httpx.AsyncClient, given: str) -> None:
    response = await client.get("/healthz", headers={"X-Request-Id": given})
    assert response.headers["x-request-id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, 'a" level="error', "a\tb", "é"])
async def test_an_id_that_could_forge_a_log_record_is_replaced(
    client: httpx.AsyncClient, given: str
) -> None:
    response = await client.get("/healthz", headers={b"X-Request-Id": given.encode()})
    assert response.headers["x-request-id"] != given


async def test_problem_and_log_records_name_the_request(
    client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    url = "/v1/features/broken?entity_id=ada"
    response = await client.get(url, headers={"X-Request-Id": "order-17"})
    assert problem_of(response)["request_id"] == "order-17"
    app = client._transport.app  # type: ignore[attr-defined]  # noqa: SLF001 - to flush its log
    app.flush()
    lines = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    found = {line["event"] for line in lines if line.get("request_id") == "order-17"}
    assert found == {"request", "request failed"}


@pytest.fixture
async def recorded(store: FeatureStore) -> tuple[str, str]:
    """Return the id and the hash of a recorded context."""

    @context(store, max_tokens=2_000)
    def letter(name: str) -> list[ContextItem]:
        return [ContextItem(f"Dear {name}, {'we thank you for your order. ' * 80}")]

    assembled = await store.assemble("letter", {"name": "Ada"})
    return assembled.context_id, assembled.record_hash


async def test_the_core_of_a_record_may_be_kept_forever(
    client: httpx.AsyncClient, recorded: tuple[str, str]
) -> None:
    context_id, record_hash = recorded
    for ref in recorded:
        response = await client.get(f"/v1/record/{ref}?part=core")
        assert response.headers["cache-control"] == FOREVER
        assert response.headers["etag"].removeprefix("W/") == f'"{record_hash}"'
        assert "X-API-Key" in response.headers["vary"]
    short = await client.get(f"/v1/record/{context_id[:30]}?part=core")
    assert short.headers["cache-control"] == "no-store", "later contexts may begin with it too"


@pytest.mark.parametrize("form", ['"{0}"', 'W/"{0}"', '"other", W/"{0}"', "*"])
async def test_a_client_that_has_the_core_gets_no_body(
    client: httpx.AsyncClient, recorded: tuple[str, str], form: str
) -> None:
    url = f"/v1/record/{recorded[1]}?part=core"
    response = await client.get(url, headers={"If-None-Match": form.format(recorded[1])})
    assert response.status_code == 304
    assert response.content == b""
    assert response.headers["etag"] == f'"{recorded[1]}"'
    assert response.headers["cache-control"] == FOREVER
    assert "content-length" not in response.headers
    assert "content-type" not in response.headers


async def test_a_redaction_changes_the_etag_of_the_document_and_not_of_the_core(
    client: httpx.AsyncClient, store: FeatureStore, recorded: tuple[str, str]
) -> None:
    _, record_hash = recorded
    url = f"/v1/record/{record_hash}"
    before, core = await client.get(url), await client.get(f"{url}?part=core")
    assert before.headers["cache-control"] == "no-store", "it contains the values"
    same = await client.get(url, headers={"If-None-Match": before.headers["etag"]})
    assert same.status_code == 304
    assert same.headers["cache-control"] == "no-store"

    await store.records.redact(record_hash, "/inputs/name", reason="request", by="dpo")
    after = await client.get(url, headers={"If-None-Match": before.headers["etag"]})
    assert after.status_code == 200
    assert after.json()["redactions"]
    unchanged = await client.get(
        f"{url}?part=core", headers={"If-None-Match": core.headers["etag"]}
    )
    assert unchanged.status_code == 304


@pytest.mark.parametrize("path", ["/v1/features/shout?entity_id=ada", "/healthz", "/v1/nothing"])
async def test_other_responses_are_not_stored(client: httpx.AsyncClient, path: str) -> None:
    response = await client.get(path)
    assert response.headers["cache-control"] == "no-store"
    assert "etag" not in response.headers


async def _raw(client: httpx.AsyncClient, path: str, accepted: str) -> tuple[httpx.Headers, bytes]:
    async with client.stream("GET", path, headers={"Accept-Encoding": accepted}) as response:
        return response.headers, b"".join([part async for part in response.aiter_raw()])


@pytest.mark.parametrize("accepted", ["gzip", "br, GZIP;q=0.5", "*", "deflate, gzip"])
async def test_large_responses_are_compressed_if_the_client_accepts_it(
    client: httpx.AsyncClient, accepted: str
) -> None:
    _, plain = await _raw(client, "/openapi.json", "identity")
    headers, body = await _raw(client, "/openapi.json", accepted)
    assert headers["content-encoding"] == "gzip"
    assert "Accept-Encoding" in headers["vary"]
    assert headers["etag"].startswith('W/"')
    assert int(headers["content-length"]) == len(body) < len(plain) / 3
    assert gzip.decompress(body) == plain


@pytest.mark.parametrize("accepted", ["", "br", "gzip;q=0", "gzip;q=0.0, *", "identity"])
async def test_responses_stay_as_they_are_for_other_clients(
    client: httpx.AsyncClient, accepted: str
) -> None:
    headers, _ = await _raw(client, "/openapi.json", accepted)
    assert "content-encoding" not in headers
    assert headers["etag"].startswith('"')


async def test_small_responses_are_not_compressed(client: httpx.AsyncClient) -> None:
    headers, _ = await _raw(client, "/v1/features/shout?entity_id=ada", "gzip")
    assert "content-encoding" not in headers


@pytest.fixture
async def paged(make_store: MakeStore) -> AsyncIterator[httpx.AsyncClient]:
    """A client of a server that pages of one origin may call."""
    async with client_of(make_store(http={"cors_origins": f"{PAGE}, http://[::1]:3000"})) as client:
        yield client


def preflight(origin: str) -> dict[str, Any]:
    asked = {"Origin": origin, "Access-Control-Request-Method": "PUT", "X-API-Key": ""}
    return {"headers": asked}


async def test_no_page_may_call_the_api_by_default(client: httpx.AsyncClient) -> None:
    response = await client.get("/healthz", headers={"Origin": PAGE})
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert problem_of(await client.options("/v1/features", **preflight(PAGE)))["status"] == 401


async def test_pages_of_a_configured_origin_may_call_the_api(paged: httpx.AsyncClient) -> None:
    for path in ("/v1/features", "/no/such/route"):
        asked = await paged.options(path, **preflight(PAGE))
        assert asked.status_code == 204
        assert asked.headers["access-control-allow-origin"] == PAGE
        assert "PUT" in asked.headers["access-control-allow-methods"]
        assert "X-API-Key" in asked.headers["access-control-allow-headers"]
    for path in ("/v1/features/shout?entity_id=ada", "/v1/nothing"):
        answered = await paged.get(path, headers={"Origin": PAGE})
        assert answered.headers["access-control-allow-origin"] == PAGE
        assert "X-Request-Id" in answered.headers["access-control-expose-headers"]
        assert "access-control-allow-credentials" not in answered.headers
        assert "Origin" in answered.headers.get_list("vary")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", PAGE + ".evil.example", ""])
async def test_pages_of_other_origins_may_not(paged: httpx.AsyncClient, origin: str) -> None:
    assert (await paged.options("/v1/features", **preflight(origin))).status_code == 401
    answered = await paged.get("/healthz", headers={"Origin": origin})
    assert "access-control-allow-origin" not in answered.headers
    assert answered.headers["vary"] == "Origin"


async def test_without_a_key_pages_of_other_machines_are_refused_even_if_configured(
    make_store: MakeStore,
) -> None:
    store = make_store(api_key="", http={"cors_origins": f"{PAGE},http://localhost:3000"})
    async with client_of(store, key=None) as client:
        url = "/v1/features/shout?entity_id=ada"
        refused = await client.get(url, headers={"Origin": PAGE})
        assert problem_of(refused)["type"].endswith(":foreign-request")
        served = await client.get(url, headers={"Origin": "http://localhost:3000"})
        assert served.status_code == 200
        assert served.headers["access-control-allow-origin"] == "http://localhost:3000"


@pytest.mark.parametrize("origins", ["*", "app.example.com", "https://a.example/", "https://A.b"])
def test_only_whole_origins_are_accepted(origins: str) -> None:
    with pytest.raises(ConfigError, match="is not the origin of a web page"):
        Settings().replace(http={"cors_origins": origins})
