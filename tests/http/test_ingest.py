"""Events over HTTP: one event, or a batch as a whole."""

import gzip
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest

from headwater import FeatureStore
from tests.http.conftest import MakeStore, client_of, problem_of, wait_until

PURCHASE = {"event_type": "purchase", "entity_id": "u1", "payload": {"amount": 10}}
NDJSON = {"Content-Type": "application/x-ndjson"}
GZIP = {"Content-Encoding": "gzip"}


async def spent(store: FeatureStore, user_id: str = "u1") -> float | None:
    await store.drain()
    total: float | None = await store.get_feature("total_spend", user_id)
    return total


async def test_an_event_is_accepted_and_takes_effect(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    response = await client.post(
        "/ingest/purchase", json={"entity_id": "u1", "payload": {"amount": 12.5}}
    )
    assert response.status_code == 202
    accepted = response.json()
    assert accepted.keys() == {"event_id", "event_type", "entity_id", "timestamp", "duplicate"}
    assert accepted["event_type"] == "purchase"
    assert accepted["entity_id"] == "u1"
    assert accepted["duplicate"] is False
    assert await spent(store) == 12.5


async def test_an_event_type_that_looks_misspelled_gets_a_hint(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/purchas", json={"entity_id": "u1"})
    assert response.status_code == 202
    hint = "no feature is triggered by 'purchas'; did you mean 'purchase'?"
    assert response.json()["hint"] == hint


async def test_the_payload_may_be_left_out(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/visit", json={"entity_id": "u1"})
    assert response.status_code == 202


async def test_a_caller_may_give_timestamp_and_event_id(client: httpx.AsyncClient) -> None:
    response = await client.post(
        "/ingest/visit",
        json={"entity_id": "u1", "timestamp": "2026-01-01T12:00:00+02:00", "event_id": "e1"},
    )
    assert response.json()["event_id"] == "e1"
    assert datetime.fromisoformat(response.json()["timestamp"]) == datetime(
        2026, 1, 1, 10, tzinfo=UTC
    )


async def test_a_repeated_event_id_counts_once_and_is_reported(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    body = {"entity_id": "u1", "payload": {"amount": 10}, "event_id": "e1"}
    answers = [(await client.post("/ingest/purchase", json=body)).json() for _ in range(3)]
    assert [answer["duplicate"] for answer in answers] == [False, True, True]
    assert await spent(store) == 10


async def test_a_repeated_event_id_with_other_content_is_409(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    body = {"entity_id": "u1", "payload": {"amount": 10}, "event_id": "e1"}
    await client.post("/ingest/purchase", json=body)
    response = await client.post("/ingest/purchase", json=body | {"payload": {"amount": 11}})
    assert response.status_code == 409
    problem = problem_of(response)
    assert problem["type"] == "urn:headwater:problem:event-conflict"
    assert problem["conflicts"] == [
        {
            "index": 0,
            "entity_id": "u1",
            "event_id": "e1",
            "problem": "payload differs",
            "is_erased": False,
        }
    ]
    assert await spent(store) == 10


async def test_a_batch_reports_every_conflict_and_accepts_the_rest(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    changed = PURCHASE | {"event_type": "refund"}
    batch = [PURCHASE | {"event_id": "e1"}, changed | {"event_id": "e1"}, PURCHASE]
    response = await client.post("/ingest", json=batch)
    assert response.status_code == 409
    (conflict,) = problem_of(response)["conflicts"]
    assert (conflict["index"], conflict["event_id"]) == (1, "e1")
    assert "2 of 3 events" in problem_of(response)["detail"]
    assert await spent(store) == 20


async def test_a_reserved_event_id_is_422(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/visit", json={"entity_id": "u1", "event_id": "redrive:1"})
    assert response.status_code == 422
    assert "reserved" in problem_of(response)["detail"]


async def test_events_without_an_id_are_never_duplicates(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    body = {"entity_id": "u1", "payload": {"amount": 10}}
    answers = [(await client.post("/ingest/purchase", json=body)).json() for _ in range(3)]
    assert not any(answer["duplicate"] for answer in answers)
    assert await spent(store) == 30


async def test_an_encoded_slash_belongs_to_the_event_type(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/shop%2Fpurchase", json={"entity_id": "u1"})
    assert response.json()["event_type"] == "shop/purchase"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({}, "entity_id"),
        ({"entity_id": 7}, "str"),
        ({"entity_id": ""}, "entity_id"),
        ({"entity_id": "u1", "payload": [1]}, "object"),
        ({"entity_id": "u1", "timestamp": "2026-01-01T00:00:00"}, "timezone"),
        ({"entity_id": "u1", "timestamp": "yesterday"}, "timestamp"),
        ({"entity_id": "u1", "payload": {"n": 2**70}}, "payload"),
        ([], "object"),
    ],
)
async def test_an_invalid_event_is_refused_with_the_reason(
    body: Any, word: str, store: FeatureStore, client: httpx.AsyncClient
) -> None:
    response = await client.post("/ingest/purchase", json=body)
    assert response.status_code == 422
    assert word in problem_of(response)["detail"]
    assert await spent(store) is None


async def test_an_unknown_field_is_named_with_the_nearest_match(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/purchase", json={"entity_id": "u1", "payloda": {}})
    assert response.status_code == 422
    problem = problem_of(response)
    assert problem["field"] == "payloda"
    assert problem["nearest"] == "payload"
    assert "did you mean 'payload'?" in problem["detail"]


async def test_an_event_from_the_future_is_refused(client: httpx.AsyncClient) -> None:
    future = datetime.now(UTC) + timedelta(minutes=6)
    body = {"entity_id": "u1", "timestamp": future.isoformat()}
    response = await client.post("/ingest/visit", json=body)
    assert response.status_code == 422
    assert problem_of(response)["type"].endswith(":invalid-event")


async def test_event_types_of_headwater_itself_are_refused(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/headwater.refresh", json={"entity_id": "u1"})
    assert response.status_code == 422


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"entity_id": "u1"',
        b'{"entity_id": "\xff"}',
        b'{"entity_id": "u1"} {}',
        b'{"entity_id": "u1", "payload": ' + b'{"a":' * 100_000,
    ],
    ids=["empty", "cut", "unclosed", "not UTF-8", "two", "deep"],
)
async def test_malformed_json_is_a_bad_request(body: bytes, client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest/purchase", content=body)
    assert response.status_code == 400
    assert problem_of(response)["type"].endswith(":malformed")


@pytest.mark.parametrize("path", ["/ingest/purchase", "/ingest"])
@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded"])
async def test_a_body_of_another_type_is_refused(
    path: str, media_type: str, client: httpx.AsyncClient
) -> None:
    response = await client.post(path, content=b"{}", headers={"Content-Type": media_type})
    assert response.status_code == 415
    assert "application/json" in problem_of(response)["detail"]


@pytest.mark.parametrize("encoding", ["gzip", " GZip ", "identity", ""])
async def test_bodies_may_be_compressed(
    encoding: str, store: FeatureStore, client: httpx.AsyncClient
) -> None:
    one = {"entity_id": "u1", "payload": {"amount": 10}}
    for path, body in (("/ingest", [PURCHASE] * 100), ("/ingest/purchase", one)):
        data = msgspec.json.encode(body)
        data = gzip.compress(data) if "zip" in encoding.lower() else data
        response = await client.post(path, content=data, headers={"Content-Encoding": encoding})
        assert response.status_code == 202
    assert await spent(store) == 1_010


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip", "x"])
async def test_a_body_that_is_compressed_otherwise_is_refused(
    encoding: str, client: httpx.AsyncClient
) -> None:
    response = await client.post("/ingest", content=b"[]", headers={"Content-Encoding": encoding})
    assert response.status_code == 415
    assert response.headers["accept-encoding"] == "gzip"
    problem = problem_of(response)
    assert problem["type"].endswith(":content-encoding")
    assert problem["detail"].endswith("is not accepted; use gzip or none")


async def test_files_are_not_decompressed(client: httpx.AsyncClient) -> None:
    headers = GZIP | {"Content-Type": "text/csv"}
    url = "/v1/history/read?features=total_spend"
    response = await client.post(url, content=gzip.compress(b"user_id\n"), headers=headers)
    assert response.status_code == 415
    assert response.headers["accept-encoding"] == "identity"


async def test_a_compressed_body_is_limited_by_its_size_after_decompression(
    make_store: MakeStore,
) -> None:
    spaces = b"[" + b" " * 998 + b"]"
    bomb = gzip.compress(b" " * 100_000_000)
    async with client_of(make_store(http={"max_body_bytes": 1_000})) as client:
        fits = await client.post("/ingest", content=gzip.compress(spaces), headers=GZIP)
        assert fits.status_code == 202
        assert fits.json() == {"events": []}
        for body in (gzip.compress(b" " + spaces), bomb[:1_000]):
            refused = await client.post("/ingest", content=body, headers=GZIP)
            assert refused.status_code == 413
            assert (
                "the decompressed body is larger than 1000 bytes" in problem_of(refused)["detail"]
            )


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"[]", "the body is not gzip"),
        (b"", "the body ends before its gzip stream does"),
        (gzip.compress(b"[]", mtime=0)[:-1], "the body ends before its gzip stream does"),
        (gzip.compress(b"[]", mtime=0) + b"x", "the body goes on after the end of its gzip stream"),
        (gzip.compress(b"[]", mtime=0) * 2, "the body goes on after the end of its gzip stream"),
        (gzip.compress(b"[]", mtime=0)[:-8] + bytes(8), "the body is not gzip"),
    ],
)
async def test_a_damaged_compressed_body_is_a_bad_request(
    body: bytes, problem: str, client: httpx.AsyncClient
) -> None:
    response = await client.post("/ingest", content=body, headers=GZIP)
    assert response.status_code == 400
    assert problem in problem_of(response)["detail"]


@pytest.mark.parametrize("headers", [NDJSON, {}])
@pytest.mark.parametrize("count", [1, 2])
async def test_lines_may_begin_with_a_byte_order_mark(
    headers: dict[str, str], count: int, store: FeatureStore, client: httpx.AsyncClient
) -> None:
    body = b"\xef\xbb\xbf" + (msgspec.json.encode(PURCHASE) + b"\n") * count
    assert (await client.post("/ingest", content=body, headers=headers)).status_code == 202
    assert await spent(store) == 10 * count


async def test_a_json_array_is_a_batch(store: FeatureStore, client: httpx.AsyncClient) -> None:
    batch = [PURCHASE, PURCHASE | {"entity_id": "u2"}, PURCHASE]
    response = await client.post("/ingest", json=batch)
    assert response.status_code == 202
    assert [event["entity_id"] for event in response.json()["events"]] == ["u1", "u2", "u1"]
    assert await spent(store, "u1") == 20
    assert await spent(store, "u2") == 10


@pytest.mark.parametrize("headers", [NDJSON, {}, {"Content-Type": "application/json"}])
async def test_lines_of_json_are_a_batch(
    headers: dict[str, str], store: FeatureStore, client: httpx.AsyncClient
) -> None:
    lines = b"\n".join([msgspec.json.encode(PURCHASE), b"", msgspec.json.encode(PURCHASE), b""])
    response = await client.post("/ingest", content=lines, headers=headers)
    assert response.status_code == 202
    assert len(response.json()["events"]) == 2
    assert await spent(store) == 20


@pytest.mark.parametrize(
    "wrong",
    [
        {"entity_id": "u1"},
        PURCHASE | {"entity_id": ""},
        PURCHASE | {"entityid": "u1"},
        PURCHASE | {"timestamp": "2026-01-01T00:00:00"},
        PURCHASE | {"timestamp": "2999-01-01T00:00:00Z"},
        PURCHASE | {"event_type": "headwater.refresh"},
        7,
    ],
)
@pytest.mark.parametrize("form", ["array", "lines"])
async def test_one_invalid_item_refuses_the_batch_and_is_named(
    wrong: Any, form: str, store: FeatureStore, client: httpx.AsyncClient
) -> None:
    items = [PURCHASE, PURCHASE, wrong, PURCHASE]
    body = msgspec.json.encode(items)
    if form == "lines":
        body = b"\n".join(map(msgspec.json.encode, items))
    response = await client.post("/ingest", content=body)
    assert response.status_code == 422
    assert problem_of(response)["index"] == 2
    assert await spent(store) is None


async def test_a_batch_of_one_names_its_item_too(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest", json=[PURCHASE | {"timestamp": "2999-01-01T00:00:00Z"}])
    assert problem_of(response)["index"] == 0


async def test_a_line_that_is_not_json_is_named(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    lines = msgspec.json.encode(PURCHASE) + b"\n{oops\n"
    response = await client.post("/ingest", content=lines, headers=NDJSON)
    assert response.status_code == 422
    assert problem_of(response)["index"] == 1
    assert await spent(store) is None


@pytest.mark.parametrize(
    "body", [b"", b" \n", b"[{]", b"[" * 100_000], ids=["empty", "blank", "cut", "deep"]
)
async def test_a_batch_that_cannot_be_read_is_a_bad_request(
    body: bytes, client: httpx.AsyncClient
) -> None:
    response = await client.post("/ingest", content=body)
    assert response.status_code == 400
    problem_of(response)


async def test_an_empty_batch_is_accepted(client: httpx.AsyncClient) -> None:
    response = await client.post("/ingest", json=[])
    assert response.status_code == 202
    assert response.json() == {"events": []}


async def test_an_event_id_repeated_in_a_batch_counts_once(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    batch = [PURCHASE | {"event_id": "e1"}, PURCHASE, PURCHASE | {"event_id": "e1"}]
    response = await client.post("/ingest", json=batch)
    duplicates = [event["duplicate"] for event in response.json()["events"]]
    assert duplicates == [False, False, True]
    assert await spent(store) == 20


async def test_a_batch_that_would_exceed_the_backlog_is_refused_whole(
    make_store: MakeStore,
) -> None:
    store = make_store(ingest={"max_backlog": 5})
    async with client_of(store) as client:
        assert (await client.post("/ingest", json=[PURCHASE] * 3)).status_code == 202
        refused = await client.post("/ingest", json=[PURCHASE] * 3)
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        detail = problem_of(refused)["detail"]
        assert "3 events wait to be processed, and 3 more would exceed the maximum of 5" in detail
        assert "none was stored: wait and retry" in detail
        assert (await client.post("/ingest", json=[PURCHASE] * 2)).status_code == 202
        assert (await client.post("/ingest/purchase", json={"entity_id": "u1"})).status_code == 503
        never = await client.post("/ingest", json=[PURCHASE] * 6)
        assert "send at most 5 at once" in problem_of(never)["detail"]
    assert await spent(store) == 50


async def test_ingest_answers_503_while_too_many_events_wait(make_store: MakeStore) -> None:
    store = make_store(ingest={"max_backlog": 2})
    for _ in range(3):
        await store.publish("purchase", "u1", {"amount": 1})
    async with client_of(store) as client:
        response = await client.post("/ingest", json=[PURCHASE])
        assert response.status_code == 503
        assert response.headers["retry-after"] == "1"
        assert problem_of(response)["type"].endswith(":backlog")
        assert await spent(store) == 3

        async def accepted() -> bool:
            return (await client.post("/ingest", json=[PURCHASE])).status_code == 202

        await wait_until(accepted)


@pytest.mark.parametrize("body", [{"events": [PURCHASE]}, {}, PURCHASE])
async def test_an_object_in_place_of_an_array_is_named(
    body: Any, client: httpx.AsyncClient
) -> None:
    content = msgspec.json.format(msgspec.json.encode(body), indent=1)
    headers = {"content-type": "application/json"}
    response = await client.post("/ingest", content=content, headers=headers)
    assert response.status_code == 400
    assert "send a JSON array" in problem_of(response)["detail"]
