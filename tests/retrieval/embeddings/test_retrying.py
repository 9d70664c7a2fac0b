"""Failed requests: which are sent again and when, and what their errors say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from prometheus_client import REGISTRY

from headwater.errors import EmbeddingError
from headwater.retrieval.embeddings.remote import RequestFailure, pause_before, requested_pause
from headwater.testing import ManualClock
from tests.retrieval.embeddings.provider_server import (
    KEY,
    Drop,
    Hang,
    ProviderServer,
    Reply,
    error,
)
from tests.retrieval.embeddings.support import Open, declared

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPTIONS: dict[str, Any] = {"provider": "openai", "model": "m", "dimensions": 8, "api_key": KEY}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.25"}, 0.25),
        ({"retry-after": "-1"}, 0),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:07 GMT"}, 7),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}, 360),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "20ms"}, 0.02),
        ({"x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "1h"}, None),
    ],
)
def test_the_pause_is_the_one_that_the_provider_asks_for(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert requested_pause(headers, NOW) == pytest.approx(seconds)


def test_other_pauses_grow_and_differ() -> None:
    failure = RequestFailure("", "", 500, is_temporary=True)
    for attempt, longest in enumerate([0.5, 1, 2, 4, 8, 8, 8]):
        pauses = {pause_before(attempt, failure) for _ in range(50)}
        assert len(pauses) > 1
        assert all(longest / 2 <= pause <= longest for pause in pauses)
    assert pause_before(0, failure._replace(pause=0)) > 0


@pytest.mark.parametrize(
    "fault",
    [
        error(429, retry_after="7"),
        error(429, retry_after_ms="7000"),
        error(429, x_ratelimit_remaining_tokens="0", x_ratelimit_reset_tokens="7s"),
        error(503, retry_after="7"),
    ],
)
async def test_a_request_waits_as_long_as_the_provider_asks(
    server: ProviderServer, opened: Open, fault: Reply
) -> None:
    clock = ManualClock()
    began = clock.now()
    server.faults.append(fault)
    embedder = opened(clock, base_url=server.url, **OPTIONS).of(declared())
    assert len(await embedder.embed(["a"], "document")) == 1
    assert 7 <= (clock.now() - began).total_seconds() < 8
    assert len(server.seen) == 2


@pytest.mark.parametrize(
    "fault",
    [
        error(500, "cannot embed 'my secret'"),
        error(502),
        error(529),
        error(408),
        Drop(),
        Reply(200, b"{", missing_bytes=9),
        Reply(200, b"no gzip", {"content-encoding": "gzip"}),
    ],
)
async def test_temporary_failures_are_retried(
    server: ProviderServer, opened: Open, fault: Reply | Drop, capsys: pytest.CaptureFixture[str]
) -> None:
    """The provider's message is not logged, because it may quote a text."""
    server.faults.extend([fault, fault, fault])
    before = REGISTRY.get_sample_value(RETRIES, EMBEDDER) or 0
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    assert len(await embedder.embed(["a"], "document")) == 1
    assert len(server.seen) == 4
    assert REGISTRY.get_sample_value(RETRIES, EMBEDDER) == before + 3
    logged = capsys.readouterr().err
    assert logged.count("embedding request failed; retrying") == 3
    assert KEY not in logged
    assert "my secret" not in logged


EMBEDDER = {"embedder": "openai/m"}
RETRIES = "headwater_embedding_retries_total"


async def test_a_request_without_an_answer_is_sent_again(
    server: ProviderServer, opened: Open
) -> None:
    server.faults.append(hang := Hang())
    # A slow machine may need more than one attempt.
    options = OPTIONS | {"timeout": 0.2, "max_retries": 100, "retry_budget": 10_000}
    embedder = opened(base_url=server.url, **options).of(declared())
    assert len(await embedder.embed(["a"], "document")) == 1
    assert len(server.seen) >= 2
    hang.go.set()


async def test_retries_end(server: ProviderServer, opened: Open) -> None:
    server.faults.extend([error(500, "overloaded")] * 9)
    embedder = opened(base_url=server.url, max_retries=3, **OPTIONS).of(declared())
    expected = r"openai/m failed: the provider answered 500 .*: overloaded, also after 3 retries; t"
    with pytest.raises(EmbeddingError, match=expected) as raised:
        await embedder.embed(["a"], "document")
    assert raised.value.status == 500
    assert len(server.seen) == 4


async def test_a_pause_beyond_the_retry_budget_is_not_made(
    server: ProviderServer, opened: Open
) -> None:
    clock = ManualClock()
    began = clock.now()
    server.faults.append(error(429, "slow down", retry_after="3600"))
    embedder = opened(clock, base_url=server.url, **OPTIONS).of(declared())
    with pytest.raises(EmbeddingError, match=r"answered 429 .*, and asks to wait 3600 s; try"):
        await embedder.embed(["a"], "document")
    assert clock.now() == began


async def test_a_server_that_cannot_be_reached_is_named(opened: Open) -> None:
    embedder = opened(base_url="http://127.0.0.1:9", max_retries=1, **OPTIONS).of(declared())
    expected = r"127\.0\.0\.1 did not answer: ConnectError, also after 1 retry; check the network"
    with pytest.raises(EmbeddingError, match=expected):
        await embedder.embed(["a"], "document")


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (error(400, "too long"), "answered 400 .*too long; correct the request.*chunk_tokens"),
        (
            error(401, f"Incorrect API key provided: {KEY}"),
            r"answered 401 \(Unauthorized\); correct the key in HEADWATER_.* or OPENAI_API_KEY",
        ),
        (error(403, f"{KEY} is forbidden"), "answered 403 .Forbidden.; correct the key"),
        (error(404, f"no model for {KEY}"), r"answered 404 .*: no model for \*\*\*; check the mod"),
        (error(429, "quota", "insufficient_quota"), "quota; check your plan"),
        (error(422, "x" * 10_000), "x{300}; correct"),
        (error(422, "x" * 290 + KEY), r"x{290}\*\*\*; correct"),
        (Reply(400, b'{"message": "invalid request"}'), "invalid request; correct"),
        (Reply(400, b'{"error": "model not found"}'), "model not found; correct"),
        (Reply(400, b"\xff<html>"), r"answered 400 \(Bad Request\); correct"),
        (Reply(301, b"", {"location": "https://elsewhere.invalid"}), "answered 301"),
    ],
)
async def test_requests_that_can_never_succeed_are_sent_once(
    server: ProviderServer, opened: Open, fault: Reply, problem: str
) -> None:
    server.faults.append(fault)
    embedder = opened(base_url=server.url, **OPTIONS).of(declared())
    with pytest.raises(EmbeddingError, match=problem) as raised:
        await embedder.embed(["a"], "document")
    assert raised.value.status == fault.status
    assert KEY not in f"{raised.value} {raised.value!r}"
    assert len(server.seen) == 1
