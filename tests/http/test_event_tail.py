"""The live tail of the event log over HTTP: resumed, bounded, and ended with the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.core.clock import SystemClock
from headwater.errors import BackendUnavailableError
from headwater.http.routes import event_tail
from headwater.http.routes.event_tail import EventStream, OpenTails
from headwater.model.events import EventPage, FollowedEvent, LoggedEvent
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, MakeStore, Serving, client_of, problem_of, wait_until

SCOPE = {"type": "http", "method": "GET", "path": "/v1/events/tail"}
TAIL = "/v1/events/tail"


class Message(msgspec.Struct, frozen=True):
    """A server-sent event."""

    id: str
    kind: str
    data: Any


async def messages(lines: AsyncIterator[str]) -> AsyncIterator[Message]:
    """Parse server-sent events; comments are left out."""
    last, kind, data = "", "message", ""
    async for line in lines:
        name, _, value = line.partition(": ")
        if not line:
            if data:
                yield Message(last, kind, msgspec.json.decode(data))
            kind, data = "message", ""
        elif name == "id":
            last = value
        elif name == "event":
            kind = value
        elif name == "data":
            data += value


@asynccontextmanager
async def tail(
    client: httpx.AsyncClient, after: str = "", **only: str
) -> AsyncIterator[AsyncIterator[Message]]:
    """Follow events; the first bytes have arrived, so later events are shown."""
    headers = {"Last-Event-ID": after} if after else {}
    async with asyncio.timeout(60), client.stream("GET", TAIL, params=only, headers=headers) as got:
        assert got.status_code == 200
        assert got.headers["content-type"].startswith("text/event-stream")
        assert got.headers["cache-control"] == "no-store"
        lines = got.aiter_lines()
        assert await anext(lines) == "retry: 2000"
        yield messages(lines)


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings.replace(api_key=KEY), clock=SystemClock())

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return int(await store.get_feature("visits", user_id)) + 1

    return store


@pytest.mark.both_environments
async def test_accepted_events_are_shown_as_they_arrive_and_after_the_last_id(
    settings: Settings, serving: Serving
) -> None:
    store = shop(settings)
    async with serving(store) as client:
        async with tail(client) as live, tail(client, event_type="visit", entity_id="b") as some:
            for number, user in enumerate("abcb"):
                body = {"entity_id": user, "payload": {"n": number}}
                assert (await client.post("/ingest/visit", json=body)).is_success
            shown = [await anext(live) for _ in range(4)]
            numbers = [each.data["event"]["payload"]["n"] for each in shown]
            assert sorted(numbers) == [0, 1, 2, 3]
            assert shown[0].data["event"]["event_type"] == "visit"
            received = datetime.fromisoformat(shown[0].data["received_at"])
            assert abs((datetime.now(UTC) - received).total_seconds()) < 60
            filtered = [await anext(some) for _ in range(2)]
            assert [each.data["event"]["payload"]["n"] for each in filtered] == [1, 3]
        async with tail(client, after=shown[1].id) as rest:
            assert [await anext(rest) for _ in range(2)] == shown[2:]


async def test_a_tail_counts_as_answered_when_it_begins(
    store: FeatureStore, serving: Serving
) -> None:
    async with serving(store) as client, tail(client):

        async def is_counted() -> bool:
            text = (await client.get("/metrics")).text
            return 'headwater_http_requests_total{method="GET",route="/v1/events/tail"' in text

        await wait_until(is_counted)


async def test_a_tail_ends_when_the_server_stops(store: FeatureStore, serving: Serving) -> None:
    async with (
        AsyncExitStack() as running,
        httpx.AsyncClient(headers={"X-API-Key": KEY}, timeout=60) as other,
    ):
        client = await running.enter_async_context(serving(store))
        other.base_url = client.base_url
        async with tail(other) as live:
            assert (await client.post("/ingest/visit", json={"entity_id": "a"})).is_success
            assert (await anext(live)).data["event"]["entity_id"] == "a"
            await running.aclose()
            # The body is complete: a client that was cut off would raise an error.
            assert [each async for each in live] == []


async def test_a_wrong_position_is_refused_before_the_response_begins(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.get(TAIL, headers={"Last-Event-ID": "nonsense"})
    assert refused.status_code == 422
    assert "not a position" in problem_of(refused)["detail"]


async def test_a_key_without_the_scope_is_refused(make_store: MakeStore) -> None:
    async with client_of(make_store(), key="wrong") as client:
        assert (await client.get(TAIL)).status_code == 401


async def test_a_process_serves_a_limited_number_of_tails(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_tail, "_MOST_TAILS", 0)
    refused = await client.get(TAIL)
    assert refused.status_code == 503
    assert problem_of(refused)["type"].endswith("too-many-tails")


class Connection:
    """The two ends of a response; a test decides when its client reads and when it leaves."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.may_read = asyncio.Event()
        self.text = ""
        self.is_complete = False

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        await self.may_read.wait()
        if message["type"] == "http.response.body":
            self.text += message["body"].decode()
            self.is_complete = not message["more_body"]


def page(number: int, *, skipped: int = 0, has_more: bool = False) -> EventPage:
    event = ServiceEvent("visit", "ada", {"n": number}, datetime(2026, 1, 1, tzinfo=UTC))
    followed = FollowedEvent(LoggedEvent(event, event.timestamp), str(number))
    return EventPage([followed], str(number), has_more, skipped)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the log without a pause."""
    monkeypatch.setattr(event_tail, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(event_tail, "_HEARTBEAT_SECONDS", 0.001)


async def run(
    connection: Connection, follow: Callable[[str | None], Any], tails: OpenTails
) -> None:
    stream = EventStream(EventPage([], "0"), follow, tails, private=False)
    await stream(SCOPE, connection.receive, connection.send)


@pytest.mark.usefixtures("quick")
async def test_a_tail_ends_when_its_client_leaves_and_reads_no_further_page() -> None:
    connection, tails, read = Connection(), OpenTails(), list[str | None]()
    connection.may_read.set()

    async def follow(position: str | None) -> EventPage:
        read.append(position)
        connection.gone.set()
        return EventPage([], f"{len(read)}")

    await run(connection, follow, tails)
    assert read[0] == "0"
    assert "id: 0\n\n" in connection.text
    assert not tails


@pytest.mark.usefixtures("quick")
async def test_a_client_that_does_not_read_keeps_the_next_page_from_being_read() -> None:
    connection, pages = Connection(), 0

    async def follow(_: str | None) -> EventPage:
        nonlocal pages
        pages += 1
        connection.may_read.clear()  # from now on the client does not read
        return page(pages, has_more=True)

    connection.may_read.set()
    running = asyncio.create_task(run(connection, follow, OpenTails()))

    async def is_read() -> bool:
        return pages == 1

    await wait_until(is_read)
    for _ in range(20):
        await asyncio.sleep(0)
    assert pages == 1
    connection.gone.set()
    connection.may_read.set()
    await running


@pytest.mark.usefixtures("quick")
async def test_a_gap_tells_how_many_events_were_left_out_and_a_failure_ends_the_tail() -> None:
    connection = Connection()
    connection.may_read.set()
    answers: list[Any] = [page(7, skipped=12), BackendUnavailableError("the disk is full")]

    async def follow(_: str | None) -> EventPage:
        answer = answers.pop(0)
        if isinstance(answer, EventPage):
            return answer
        raise answer

    await run(connection, follow, OpenTails())

    async def lines() -> AsyncIterator[str]:
        for line in connection.text.split("\n"):
            yield line

    gap, event, problem = [each async for each in messages(lines())]
    assert (gap.kind, gap.data) == ("gap", {"skipped": 12})
    assert (event.id, event.data["event"]["payload"]) == ("7", {"n": 7})
    assert (problem.kind, problem.data["status"]) == ("problem", 503)
    assert connection.is_complete


async def test_the_head_of_a_tail_has_no_body_and_no_end_to_wait_for(
    client: httpx.AsyncClient,
) -> None:
    async with asyncio.timeout(60):
        head = await client.head(TAIL)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")
    assert "content-length" not in head.headers
