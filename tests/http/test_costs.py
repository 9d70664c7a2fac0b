"""What one request may cost: values, names of any length, and work for a client that has gone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import httpx
import pytest
from starlette.types import Message

from headwater import FeatureStore, Index, context, entity, feature
from headwater.errors.hints import closest
from headwater.http.app import App, create_app
from headwater.http.routing.disconnects import Disconnects
from headwater.http.routing.request_errors import DisconnectedError
from headwater.retrieval.analysis import terms
from headwater.retrieval.embeddings import local
from tests.engine.support import until, until_shared
from tests.http.conftest import KEY, MakeStore, Serving, client_of, problem_of

LONG = "x" * 200_000


async def test_a_request_for_too_many_values_is_refused(make_store: MakeStore) -> None:
    async with client_of(make_store(http={"max_values": 6})) as client:
        ids, names = ["ada", "bob", "cy"], ["shout", "visits"]
        allowed = await client.post("/v1/features", json={"entity_ids": ids, "features": names})
        assert allowed.status_code == 200
        refused = await client.post(
            "/v1/features", json={"entity_ids": [*ids, "ada"], "features": names}
        )
    problem = problem_of(refused)
    assert refused.status_code == 422
    assert problem["type"].endswith(":too-many-values")
    assert problem["limit"] == 6
    assert "8 values (4 entity ids and 2 features)" in problem["detail"]
    assert "http.max_values" in problem["detail"]


async def test_equal_ids_and_names_are_read_once(store: FeatureStore) -> None:
    called: list[str] = []

    @entity(store)
    class Guest:
        guest_id: str

    @feature(entity=Guest)
    def name(guest_id: str) -> str:
        called.append(guest_id)
        return guest_id.title()

    ids = ["ada", "bob"] * 1_000
    async with client_of(store) as client:
        body = {"entity_ids": ids, "features": ["name"] * 10}
        response = await client.post("/v1/features", json=body)
    rows = response.json()["rows"]
    assert sorted(called) == ["ada", "bob"]
    assert [row["entity_id"] for row in rows] == ids
    assert {row["values"]["name"]["value"] for row in rows} == {"Ada", "Bob"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/features", {"entity_ids": ["a"], "features": [LONG]}),
        ("POST", "/v1/features", {"entity_ids": [LONG], "features": ["shout"]}),
        ("POST", "/v1/features", {"entity_ids": ["a"], "features": ["shout"], "entity": LONG}),
        ("POST", "/v1/features", {"entity_ids": ["a"], "features": ["shout"], LONG: 1}),
        ("POST", "/v1/contexts/desk", {"params": {LONG: 1}}),
        ("POST", "/v1/contexts/desk", {"params": {"topic": "a"}, "freshness_sla": LONG}),
        ("POST", "/v1/search/notes", {"query": "a", "mode": LONG}),
        ("POST", "/v1/search/notes", {"query": "a", "as_of": LONG}),
        ("POST", "/v1/search/notes", {"query": "a", "filters": {LONG: {LONG: 1}}}),
        ("POST", "/ingest/visit", {"entity_id": LONG}),
        ("POST", "/ingest/visit", {"entity_id": "a", "event_id": LONG}),
        ("POST", "/ingest/visit", {"entity_id": "a", "timestamp": LONG}),
        ("GET", f"/v1/features/shout?entity_id=a&{LONG[:9_000]}=1", None),
        ("GET", f"/v1/context/{LONG[:9_000]}", None),
        ("GET", f"/v1/index/notes/{LONG[:9_000]}", None),
        ("GET", f"/v1/contexts?limit={LONG[:9_000]}", None),
        ("GET", f"/v1/contexts?cursor={LONG[:9_000]}", None),
    ],
)
async def test_names_of_callers_are_cut_in_problems(
    store: FeatureStore, method: str, path: str, body: dict[str, Any] | None
) -> None:
    @context(store)
    def desk(topic: str) -> str:
        return topic

    Index(store, "notes", embedder="lexical")
    async with client_of(store) as client:
        response = await client.request(method, path, json=body)
    assert 400 <= response.status_code < 500
    assert len(problem_of(response)["detail"]) < 1_600
    assert len(response.content) < 2_500


def test_a_name_longer_than_any_declared_one_is_not_compared() -> None:
    assert closest("x" * 255, ["x" * 256]) == "x" * 256
    assert closest("x" * 257, ["x" * 256]) is None


class Calls:
    """On-demand features and a context that wait, and how they ended."""

    def __init__(self, store: FeatureStore) -> None:
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.ended: list[str] = []

        @entity(store)
        class Guest:
            guest_id: str

        @feature(entity=Guest)
        async def waits(guest_id: str) -> str:
            return await self.wait()

        @context(store)
        async def waiting() -> str:
            return await self.wait()

    async def wait(self) -> str:
        self.begun.set()
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("returned")
        return "done"


@pytest.mark.parametrize(
    "request_of",
    [
        lambda client: client.get("/v1/features/waits?entity_id=g"),
        lambda client: client.post(
            "/v1/features", json={"entity_ids": ["g"], "features": ["waits"]}
        ),
        lambda client: client.post("/v1/contexts/waiting", json={}),
    ],
    ids=["one feature", "many features", "context"],
)
async def test_work_stops_when_its_client_disconnects(
    make_store: MakeStore,
    serving: Serving,
    capsys: pytest.CaptureFixture[str],
    request_of: Callable[[httpx.AsyncClient], Coroutine[Any, Any, httpx.Response]],
) -> None:
    store = make_store()
    calls = Calls(store)
    async with serving(store, worker=False) as client:
        request = asyncio.create_task(request_of(client))
        await calls.begun.wait()
        request.cancel()
        await until(lambda: calls.ended == ["cancelled"])
        assert (await client.get("/v1/features/shout?entity_id=g")).status_code == 200
    assert '"status":499' in capsys.readouterr().err


async def test_embedding_stops_when_the_client_of_its_document_disconnects(
    make_store: MakeStore, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store()
    begun, ended = asyncio.Event(), asyncio.Event()

    async def embed(texts: list[str]) -> list[list[float]]:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return []

    Index(store, "docs", embedder=embed, dimensions=3)
    async with serving(store, worker=False) as client:
        path, body = "/v1/index/docs/parcels", {"text": "Parcels take two days."}
        request = asyncio.create_task(client.put(path, json=body))
        await until(begun.is_set)
        request.cancel()
        await until(ended.is_set)
        assert (await client.get(path)).status_code == 404
    assert '"status":499' in capsys.readouterr().err


async def test_a_caller_that_stays_gets_the_value_that_another_gave_up(
    make_store: MakeStore, serving: Serving
) -> None:
    store = make_store()
    calls = Calls(store)
    async with serving(store, worker=False) as client:
        leaves = asyncio.create_task(client.get("/v1/features/waits?entity_id=g"))
        await calls.begun.wait()
        stays = asyncio.create_task(store.get_feature("waits", "g"))
        await until_shared(store, 2)
        leaves.cancel()
        await until(lambda: leaves.done())
        # The server has seen the end of that connection when it answers on another one.
        assert (await client.get("/v1/features/shout?entity_id=g")).status_code == 200
        calls.go_on.set()
        assert await stays == "done"
    assert calls.ended == ["returned"]


async def served(app: App, receive: Callable[[], Coroutine[Any, Any, Message]]) -> list[Message]:
    """Return the messages that the application sends for a request."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/features/waits",
        "query_string": b"entity_id=g",
        "headers": [(b"x-api-key", KEY.encode())],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return sent


async def test_a_stop_of_the_server_is_not_taken_for_a_disconnect(store: FeatureStore) -> None:
    calls = Calls(store)

    async def receive() -> Message:
        await asyncio.Event().wait()
        raise AssertionError

    request = asyncio.create_task(served(create_app(store), receive))
    await calls.begun.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_function_that_ignores_the_cancellation_keeps_its_result() -> None:
    async def gone() -> Message:
        return {"type": "http.disconnect"}

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "kept"
        return "never"

    assert await Disconnects().run(gone, stubborn()) == "kept"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    with pytest.raises(DisconnectedError):
        await Disconnects().run(gone, asyncio.Event().wait())
    assert task.cancelling() == 0


async def test_a_long_document_is_embedded_off_the_event_loop(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    Index(store, "notes", embedder="lexical")
    threads: set[str] = set()

    def noted(text: str) -> list[str]:
        threads.add(threading.current_thread().name)
        return list(terms(text))

    monkeypatch.setattr(local, "terms", noted)
    here = threading.current_thread().name
    async with client_of(store) as client:
        long = " ".join(f"word{number}" for number in range(2_000))
        assert (await client.put("/v1/index/notes/long", json={"text": long})).status_code == 200
        assert threads
        assert here not in threads
        threads.clear()
        await client.put("/v1/index/notes/short", json={"text": "a short text"})
        assert threads == {here}
