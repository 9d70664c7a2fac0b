"""Models of providers, over HTTP."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from http.client import responses
from typing import NamedTuple

import httpx
import msgspec

from headwater.core.by_loop import ByLoop
from headwater.core.clock import Clock
from headwater.core.http_urls import without_credentials
from headwater.core.logging import log
from headwater.core.prices import cost_nano_usd
from headwater.core.retrying import Pause, backoff, retried, retry_after_seconds
from headwater.errors import EmbeddingError, MissingApiKeyError
from headwater.ports import Embedding
from headwater.retrieval.embeddings.batched import COST, RETRIES, TOKENS
from headwater.retrieval.embeddings.embedder import TextKind
from headwater.retrieval.embeddings.vectors import to_embeddings
from headwater.retrieval.embeddings.wire import (
    EmbeddingAnswer,
    EmbeddingRequest,
    ProviderEndpoint,
    WireFormat,
)
from headwater.settings.groups import EmbeddingSettings

_encode = msgspec.json.Encoder().encode
_NANO = 1_000_000_000
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0
_RETRYABLE = {408, 409, 425, 429}
_LONGEST_MESSAGE = 300
_LARGEST_ANSWER = 268_435_456
"""Bytes: twice those of the most vectors that a provider returns at once, written as text."""
_SHORTEN = "correct the request: a text may be too long for the model, so lower chunk_tokens"
_REMEDIES = {
    404: "check the model, and embeddings.base_url",
    429: "check your plan and its limits",
}
_RESET = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class _Connection(NamedTuple):
    """The HTTP client of an event loop, and the requests that it may make at once."""

    client: httpx.AsyncClient
    slots: asyncio.Semaphore


class Connections:
    """The HTTP clients of all event loops; each is closed with its loop at the latest."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._by_loop: ByLoop[_Connection] = ByLoop(lambda connection: connection.client.aclose())

    async def of_loop(self) -> _Connection:
        """Return the connection of the running event loop."""
        connection = self._by_loop.current()
        if connection is None:
            slots = asyncio.Semaphore(self._concurrency)
            connection = await self._by_loop.keep(_Connection(httpx.AsyncClient(), slots))
        return connection

    async def close(self) -> None:
        """Close the clients of all loops."""
        await self._by_loop.close()


class RemoteModel:
    """A model of a provider."""

    def __init__(
        self,
        name: str,
        dimensions: int,
        wire: WireFormat,
        endpoint: ProviderEndpoint,
        settings: EmbeddingSettings,
        connections: Connections,
        clock: Clock,
        rates: Mapping[str, int],
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self._model = name.partition("/")[2]
        self._wire = wire
        self._endpoint = endpoint
        self._settings = settings
        self._connections = connections
        self._clock = clock
        self._rates = rates
        # Only models of which we know that they offer other dimensions are asked for them.
        (usual, *_) = wire.models.get(self._model, (dimensions,))
        self._reduced_to = None if dimensions == usual else dimensions

    def batches(self, texts: Sequence[str]) -> Iterator[Sequence[str]]:
        """Split texts by the provider's limits; a token is hardly less than two bytes."""
        size = min(self._settings.batch_size, self._wire.max_texts)
        batch: list[str] = []
        tokens = 0
        for text in texts:
            needed = len(text.encode("utf-8", "replace")) // 2 + 1
            if batch and (len(batch) == size or tokens + needed > self._wire.max_tokens):
                yield batch
                batch, tokens = [], 0
            batch.append(text)
            tokens += needed
        if batch:
            yield batch

    async def embed(self, texts: Sequence[str], kind: TextKind) -> list[Embedding]:
        # Providers refuse empty texts, and JSON has no halves of surrogate pairs.
        clean = [text.encode("utf-8", "replace").decode() or " " for text in texts]
        request = EmbeddingRequest(self._model, clean, kind, self._reduced_to)
        content = await self._send(_encode(self._wire.body(request)))
        try:
            answer = self._wire.read(content)
        except ValueError as error:  # of msgspec, of base64, or ours
            raise EmbeddingError(
                self.name,
                f"the provider's answer cannot be read: {error}",
                "check that embeddings.base_url is the address of its API",
            ) from error
        await self._count(answer)
        return to_embeddings(self, answer.vectors, len(texts))

    async def _send(self, content: bytes) -> bytes:
        """Return the body of the answer; retry while that can help and there is time."""
        connection, began = await self._connections.of_loop(), self._clock.monotonic()

        async def attempt(number: int) -> bytes | Pause:
            answer = await self._attempt(connection.client, content)
            if isinstance(answer, bytes):
                return answer
            pause = pause_before(number, answer)
            elapsed = (self._clock.monotonic() - began) / 1_000_000
            if (
                not answer.is_temporary
                or number == self._settings.max_retries
                or elapsed + pause > self._settings.retry_budget
            ):
                raise self._error(answer, number, pause)
            log.warning(
                "embedding request failed; retrying",
                embedder=self.name,
                problem=answer.problem,
                pause_seconds=round(pause, 3),
            )
            RETRIES.labels(self.name).inc()
            return Pause(pause)

        async with connection.slots:
            return await retried(attempt, self._clock)

    async def _attempt(self, client: httpx.AsyncClient, content: bytes) -> bytes | RequestFailure:
        wire, endpoint, seconds = self._wire, self._endpoint, self._settings.timeout
        if endpoint.needs_key and not endpoint.key:
            raise MissingApiKeyError(self.name, endpoint.variables)
        url, auth = without_credentials(httpx.URL(wire.url(endpoint.base_url, self._model)))
        headers = wire.headers(endpoint.key) if endpoint.key else {}
        try:
            async with (
                asyncio.timeout(seconds),
                client.stream(
                    "POST",
                    url,
                    content=content,
                    headers={**headers, "content-type": "application/json"},
                    auth=auth,
                    timeout=seconds,
                ) as response,
            ):
                answer = await self._body(response)
        except (httpx.RequestError, TimeoutError) as error:
            return unreachable(url.host, error)
        if response.status_code == httpx.codes.OK:
            return answer
        if endpoint.key:
            answer = answer.replace(endpoint.key.encode(), b"***")
        return refused(
            response.status_code, response.headers, answer, self._clock.now(), endpoint.variables
        )

    async def _body(self, response: httpx.Response) -> bytes:
        body = bytearray()
        async for part in response.aiter_bytes():
            body += part
            if len(body) > _LARGEST_ANSWER:
                raise EmbeddingError(
                    self.name,
                    f"the provider's answer has more than {_LARGEST_ANSWER:,} bytes",
                    "check that embeddings.base_url is the address of its API",
                )
        return bytes(body)

    def _error(self, failure: RequestFailure, attempt: int, pause: float) -> EmbeddingError:
        problem = f"{failure.problem}{': ' if failure.message else ''}{failure.message}"
        if attempt:
            problem += f", also after {attempt} {'retry' if attempt == 1 else 'retries'}"
        elif failure.pause is not None:
            problem += f", and asks to wait {pause:.0f} s"
        return EmbeddingError(self.name, problem, failure.remedy, failure.status)

    async def _count(self, answer: EmbeddingAnswer) -> None:
        if not answer.tokens:
            return
        TOKENS.labels(self.name).inc(answer.tokens)
        # In a thread, because the first lookup loads the table of prices.
        cost = await asyncio.to_thread(
            cost_nano_usd, self.name, answer.tokens, self._clock.now(), self._rates
        )
        if cost is not None:
            COST.labels(self.name).inc(cost / _NANO)


class RequestFailure(NamedTuple):
    """A request that failed.

    ``message`` is the provider's, which may quote texts; ``pause`` is the time in seconds that it
    wants, if any.
    """

    problem: str
    remedy: str
    status: int | None
    is_temporary: bool
    message: str = ""
    pause: float | None = None


class _Details(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class _Refusal(msgspec.Struct):
    """The two forms in which providers describe an error."""

    error: _Details | str | None = None
    message: str | None = None


def unreachable(url: str, error: Exception) -> RequestFailure:
    """Return the failure of a request that had no answer."""
    problem = f"{url} did not answer: {type(error).__name__}"
    return RequestFailure(
        problem, "check the network and embeddings.base_url", None, is_temporary=True
    )


def refused(
    status: int, headers: Mapping[str, str], content: bytes, now: datetime, variables: str
) -> RequestFailure:
    """Return the failure of a request that was answered with an error."""
    details = _details(content)
    problem = f"the provider answered {status} ({responses.get(status, 'unknown')})"
    if status in (401, 403):
        # Their messages repeat parts of the key.
        return RequestFailure(
            problem, f"correct the key in {variables}", status, is_temporary=False
        )
    message = details.message[:_LONGEST_MESSAGE]
    if details.code != "insufficient_quota" and (status in _RETRYABLE or status >= 500):
        remedy = "try again later" + ("; lower embeddings.concurrency" if status == 429 else "")
        pause = requested_pause(headers, now)
        return RequestFailure(
            problem, remedy, status, is_temporary=True, message=message, pause=pause
        )
    remedy = _REMEDIES.get(status, _SHORTEN)
    return RequestFailure(problem, remedy, status, is_temporary=False, message=message)


def pause_before(attempt: int, failure: RequestFailure) -> float:
    """Return the seconds to wait before the next attempt; the first attempt is 0."""
    pause = backoff(attempt, _FIRST_PAUSE, _LONGEST_PAUSE)
    # A server that asks for no pause would be asked in a loop.
    return pause if failure.pause is None else max(failure.pause, pause / 4)


def requested_pause(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds after which the server wants to be asked again, if it says so."""
    milliseconds = retry_after_seconds(headers.get("retry-after-ms", ""), now)
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = retry_after_seconds(headers.get("retry-after", ""), now)
    return _until_reset(headers) if seconds is None else seconds


def _until_reset(headers: Mapping[str, str]) -> float | None:
    """Return when the limits that are used up are reset, by the headers of OpenAI and others."""
    resets = [
        sum(float(number) * _UNITS[unit] for number, unit in _RESET.findall(reset))
        for limit in ("requests", "tokens")
        if headers.get(f"x-ratelimit-remaining-{limit}") == "0"
        and (reset := headers.get(f"x-ratelimit-reset-{limit}"))
    ]
    return max(resets, default=None)


def _details(content: bytes) -> _Details:
    try:
        refusal = msgspec.json.decode(content, type=_Refusal)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Details()
    if isinstance(refusal.error, _Details):
        return refusal.error
    return _Details(refusal.error or refusal.message or "")
