"""Requests are repeated where that is safe, and as late as the server asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from headwater import FeatureStore, ServiceEvent, create_app
from headwater.client import AsyncClient
from headwater.core.clock import SystemClock
from headwater.errors import (
    OverloadedError,
    RateLimitedError,
    ServerUnreachableError,
    UnexpectedResponseError,
)
from tests.client.conftest import MakeClient
from tests.client.unreliable import Answer, Fault, Unreliable, lost, refused

PROBLEM = {"content-type": "application/problem+json"}
LIMITED = Answer(
    429,
    PROBLEM,
    b'{"type":"urn:headwater:problem:too-many-requests","title":"t","status":429,"detail":"d"}',
)
BUSY = Answer(
    503,
    PROBLEM,
    b'{"type":"urn:headwater:problem:backlog","title":"t","status":503,"detail":"d"}',
)
GATEWAY = Answer(502, {"content-type": "text/html"}, b"<html>")
UNAVAILABLE = Answer(
    503,
    PROBLEM,
    b'{"type":"urn:headwater:problem:backend","title":"t","status":503,"detail":"d"}',
)


class Pauses(SystemClock):
    """The real time, in which pauses are recorded and take none."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


Broken = Callable[..., tuple[AsyncClient, Unreliable, Pauses]]


@pytest.fixture
def broken(connect: MakeClient, store: FeatureStore, monkeypatch: pytest.MonkeyPatch) -> Broken:
    """Return a function that makes a client whose network has faults."""

    def broken(*faults: Fault, retries: int = 4) -> tuple[AsyncClient, Unreliable, Pauses]:
        network, pauses = Unreliable(create_app(store), *faults), Pauses()
        monkeypatch.setattr("headwater.client.async_client.SystemClock", lambda: pauses)
        return connect(transport=network, retries=retries), network, pauses

    return broken


@pytest.mark.parametrize("fault", [refused, lost, LIMITED, BUSY, GATEWAY, UNAVAILABLE])
async def test_a_read_is_repeated_after_each_temporary_failure(
    broken: Broken, fault: Fault
) -> None:
    client, network, pauses = broken(fault, fault)
    assert await client.get_feature("total_spend", "ada") is None
    assert len(network.requests) == 3
    assert 0 < pauses.seconds[0] <= 0.1
    assert pauses.seconds[0] <= 2 * pauses.seconds[1]


async def test_an_event_whose_response_was_lost_is_published_once(
    broken: Broken, store: FeatureStore
) -> None:
    client, network, _ = broken(lost, lost)
    event = await client.publish("purchase", "ada", {"amount": 3.0})
    assert len(network.requests) == 3
    (logged,) = await store.bus.list()
    assert logged.event.event_id == event.event_id
    await store.drain()
    assert await client.get_feature("total_spend", "ada") == 3.0


async def test_an_outcome_whose_response_was_lost_is_stored_once(broken: Broken) -> None:
    client, network, _ = broken(None, lost, GATEWAY)
    ctx = await client.assemble("support", {"user_id": "ada"})
    added = await ctx.add_outcome(answer="It arrives on Friday.")
    assert len(network.requests) == 4
    assert await client.records.outcomes(ctx.context_id) == [added]


@pytest.mark.parametrize("fault", [lost, GATEWAY, UNAVAILABLE])
async def test_an_assembly_that_may_have_begun_is_not_repeated(
    broken: Broken, fault: Fault
) -> None:
    client, network, _ = broken(fault)
    with pytest.raises(Exception, match=r"no response|did not answer as|d"):
        await client.assemble("support", {"user_id": "ada"})
    assert len(network.requests) == 1


@pytest.mark.parametrize("fault", [refused, LIMITED, BUSY])
async def test_an_assembly_that_cannot_have_begun_is_repeated(broken: Broken, fault: Fault) -> None:
    client, network, _ = broken(fault)
    await client.assemble("support", {"user_id": "ada"})
    assert len(network.requests) == 2
    assert len((await client.list_contexts()).contexts) == 1


async def test_a_removal_whose_result_was_lost_is_not_repeated(
    broken: Broken, store: FeatureStore
) -> None:
    await store.publish("purchase", "ada", {"amount": 3.0})
    await store.drain()
    await store.backfills.run("total_spend")
    client, network, _ = broken(lost)
    # A second request would say that there is no backfill, and the first one has cancelled it.
    with pytest.raises(ServerUnreachableError):
        await client.backfills.cancel("total_spend")
    assert len(network.requests) == 1


async def test_a_request_waits_as_long_as_the_server_asks(
    broken: Broken, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.client.server._LONGEST_PAUSE_SECONDS", 600.0)
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=500), usegmt=True)
    seconds = LIMITED._replace(headers={**PROBLEM, "retry-after": "7"})
    date = BUSY._replace(headers={**PROBLEM, "retry-after": until})
    client, _, pauses = broken(seconds, date)
    assert await client.get_feature("total_spend", "ada") is None
    assert pauses.seconds[0] == 7
    assert 0 < pauses.seconds[1] <= 500


async def test_a_longer_wait_is_left_to_the_caller(broken: Broken) -> None:
    client, network, _ = broken(LIMITED._replace(headers={**PROBLEM, "retry-after": "3600"}))
    with pytest.raises(RateLimitedError):
        await client.get_feature("total_spend", "ada")
    assert len(network.requests) == 1


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (refused, ServerUnreachableError),
        (LIMITED, RateLimitedError),
        (BUSY, OverloadedError),
        (GATEWAY, UnexpectedResponseError),
    ],
)
async def test_the_last_failure_is_raised_when_no_attempt_is_left(
    broken: Broken, fault: Fault, error: type[Exception]
) -> None:
    client, network, pauses = broken(*[fault] * 9, retries=3)
    with pytest.raises(error):
        await client.get_feature("total_spend", "ada")
    assert len(network.requests) == 4
    assert len(pauses.seconds) == 3


async def test_a_server_that_does_not_answer_in_time_is_unreachable() -> None:
    async with AsyncClient("http://localhost", transport=_Silent(), timeout=0.05, retries=0) as c:
        with pytest.raises(ServerUnreachableError, match=r"did not answer within 0\.05 s"):
            await c.admin.is_alive()


class _Silent(httpx.AsyncBaseTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Answer(200, {}, b"<html>"), "invalid"),
        (Answer(301, {"location": "https://localhost/"}), "301 Moved Permanently to https"),
        (Answer(404, {"content-type": "text/html"}), "404 Not Found with text/html"),
        (Answer(422, PROBLEM, b"{"), "422 Unprocessable Entity"),
    ],
)
async def test_a_response_of_another_program_is_named(
    broken: Broken, answer: Answer, problem: str
) -> None:
    client, _, _ = broken(answer)
    with pytest.raises(UnexpectedResponseError, match=f"http://localhost did not.*{problem}"):
        await client.get_feature("total_spend", "ada")


async def test_a_retried_batch_is_stored_once(broken: Broken, store: FeatureStore) -> None:
    client, _, _ = broken(lost, GATEWAY, lost)
    events = [ServiceEvent("purchase", "ada", {"amount": 1.0}) for _ in range(50)]
    await client.bus.publish_many(events)
    assert len(await store.bus.list(limit=200)) == 50


async def test_responses_are_compressed_on_the_way(client: AsyncClient, broken: Broken) -> None:
    served, network, _ = broken()
    await served.declarations()
    assert "gzip" in network.requests[0].headers["accept-encoding"]
