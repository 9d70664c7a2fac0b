"""Error responses, and the details that only the log has."""

from collections.abc import AsyncIterator

import httpx
import msgspec
import pytest

from headwater import FeatureStore, errors
from headwater.declarations.runtime import runtime_of
from headwater.errors.base import RequestError
from headwater.http.routing import problems
from tests.http.conftest import KEY, MakeStore, Serving, client_of, damage, problem_of

READ = "/v1/features/visits?entity_id=u1"


@pytest.mark.parametrize(
    "path",
    ["/nowhere", "/v1", "/v1/features/", "/v1/features/a/b", "/v1/feature/a", "/v1//features"],
)
async def test_a_path_without_a_route_is_not_found(path: str, client: httpx.AsyncClient) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    assert problem_of(response)["type"].endswith(":no-route")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/lag", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/ingest", "POST"),
        ("OPTIONS", "/ingest/visit", "POST"),
        ("BREW", "/ingest/visit", "POST"),
    ],
)
async def test_another_method_is_refused_with_those_allowed(
    method: str, path: str, allowed: str, client: httpx.AsyncClient
) -> None:
    response = await client.request(method, path)
    assert response.status_code == 405
    assert response.headers["allow"] == allowed
    problem_of(response)


async def test_a_body_too_large_is_refused(make_store: MakeStore, serving: Serving) -> None:
    store = make_store(http={"max_body_bytes": 1_000})
    async with serving(store) as client:
        response = await client.post("/ingest/visit", content=b"x" * 1_001)
        assert response.status_code == 413
        assert problem_of(response)["limit"] == 1_000
        assert (await client.get(READ)).status_code == 200


async def test_a_body_too_large_is_refused_without_a_declared_length(
    make_store: MakeStore, serving: Serving
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield b"x" * 100

    store = make_store(http={"max_body_bytes": 1_000})
    async with serving(store) as client:
        response = await client.post("/ingest/visit", content=parts())
        assert response.status_code == 413
        problem_of(response)
        assert (await client.get(READ)).status_code == 200


async def test_a_body_as_large_as_allowed_is_taken(make_store: MakeStore) -> None:
    body = msgspec.json.encode({"entity_id": "u1"}).ljust(1_000)
    async with client_of(make_store(http={"max_body_bytes": 1_000})) as client:
        assert (await client.post("/ingest/visit", content=body)).status_code == 202


async def test_a_feature_that_fails_is_named_without_its_message(
    client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    response = await client.get("/v1/features/broken?entity_id=u1")
    assert response.status_code == 500
    problem = problem_of(response)
    assert problem["type"].endswith(":feature-failed")
    assert (problem["feature"], problem["entity_id"]) == ("broken", "u1")
    assert "hunter2" not in response.text
    assert "Traceback" not in response.text
    (record,) = failures(capsys)
    assert "hunter2" in record["traceback"]
    assert record["route"] == "/v1/features/{name}"


async def test_an_unexpected_error_shows_no_details_and_is_logged_once(
    store: FeatureStore,
    client: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runtime_of(store), "clock", None)
    response = await client.get(READ)
    assert response.status_code == 500
    problem = problem_of(response)
    assert problem["type"].endswith(":internal")
    assert "NoneType" not in response.text
    (record,) = failures(capsys)
    assert "NoneType" in record["traceback"]


async def test_a_store_that_cannot_be_used_is_unavailable(
    store: FeatureStore, client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await damage(store)
    response = await client.get(READ)
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert problem_of(response)["type"].endswith(":backend")
    (record,) = failures(capsys)
    assert store.settings.home not in response.text
    assert store.settings.home in record["error"]


async def test_a_client_that_disconnects_while_it_sends_is_not_logged_as_an_error(
    serving: Serving, store: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield b"["
        raise ConnectionError("the client has gone")

    async with serving(store) as client:
        with pytest.raises(ConnectionError):
            await client.post("/ingest", content=parts())
        assert (await client.get(READ)).status_code == 200
    assert failures(capsys) == []


def test_every_error_of_a_request_has_a_rule() -> None:
    shared = {errors.InvalidInputError, errors.NotFoundError, errors.BackendError}
    assert shared | {*RequestError.__subclasses__()} <= problems.RULES.keys()


def test_the_name_of_a_problem_is_stable() -> None:
    assert {rule.name: rule.status for rule in problems.RULES.values()} == {
        "malformed": 400,
        "key-required": 401,
        "foreign-request": 403,
        "scope": 403,
        "limit": 403,
        "no-route": 404,
        "not-found": 404,
        "unknown-name": 404,
        "unknown-record": 404,
        "unknown-outcome": 404,
        "unknown-document": 404,
        "unknown-dead-letter": 404,
        "unknown-evaluation": 404,
        "unknown-group": 404,
        "method": 405,
        "immutable-record": 409,
        "feature-in-use": 409,
        "group-in-use": 409,
        "index-mismatch": 409,
        "entity-changed": 409,
        "request-timeout": 408,
        "too-large": 413,
        "table-too-large": 413,
        "url-too-long": 414,
        "headers-too-large": 431,
        "media-type": 415,
        "content-encoding": 415,
        "invalid-input": 422,
        "looser-override": 422,
        "invalid-duration": 422,
        "invalid-event": 422,
        "invalid-feature-value": 422,
        "ambiguous-ref": 422,
        "invalid-record-value": 422,
        "token-budget": 422,
        "not-fresh": 422,
        "too-many-values": 422,
        "too-many-requests": 429,
        "too-many-wrong-keys": 429,
        "token-keys-unavailable": 503,
        "disconnected": 499,
        "feature-failed": 500,
        "retriever-failed": 500,
        "rerank-failed": 500,
        "context-failed": 500,
        "damaged-record": 500,
        "not-signed": 500,
        "not-configured": 500,
        "embedding-failed": 503,
        "backlog": 503,
        "store-full": 503,
        "not-recorded": 503,
        "backend": 503,
        "event-conflict": 409,
        "too-many-chunks": 413,
        "store-lost": 503,
        "store-mismatch": 503,
        "too-many-connections": 503,
        "too-many-tails": 503,
        "too-many-calls": 503,
        "slow-call": 504,
        "retriever-timeout": 504,
        "context-timeout": 504,
    }


def failures(capsys: pytest.CaptureFixture[str]) -> list[dict[str, str]]:
    records = [msgspec.json.decode(line) for line in capsys.readouterr().err.splitlines()]
    assert KEY not in str(records)
    return [record for record in records if record["event"] == "request failed"]
