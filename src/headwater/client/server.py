"""Requests to a Headwater server: encode, send, retry, decode."""

from __future__ import annotations

import asyncio
import inspect
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from datetime import datetime
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from types import NoneType
from typing import Any, BinaryIO, Concatenate, NamedTuple, ParamSpec, TypeVar, cast
from urllib.parse import quote

import httpx
import msgspec

from headwater.client.problems import error_of
from headwater.core.clock import Clock
from headwater.core.codec import encode_custom
from headwater.core.http_urls import without_credentials
from headwater.core.masking import mask_address
from headwater.core.progress import with_bar
from headwater.core.retrying import Pause, backoff, retried, retry_after_seconds
from headwater.core.tls import client_context, explained
from headwater.errors import (
    ConfigError,
    ConnectionLostError,
    HeadwaterError,
    InvalidInputError,
    OverloadedError,
    RateLimitedError,
    ServerUnreachableError,
    UnexpectedResponseError,
)
from headwater.model.problems import MEDIA_TYPE, UNAVAILABLE, OnStep, Problem, ProgressStep
from headwater.store.verbs.verb import Arguments, Verb, Verbs

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
V = TypeVar("V")

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0
_CONNECT_SECONDS = 5.0
_BYTES_AT_ONCE = 256 * 1024
# Of a proxy whose server is gone, or is starting.
_GATEWAY_STATUSES = {502, UNAVAILABLE, 504}
# The request was not sent.
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)

_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


class Request(NamedTuple):
    """A request, and whether it may be repeated if its outcome is unknown."""

    method: str
    path: str
    query: Mapping[str, Any]
    body: bytes | Path | None
    """A path stands for the bytes of a file."""
    is_repeatable: bool
    media_type: str = "application/json"
    is_streamed: bool = False
    """Whether the body of the response is read line by line."""
    waits: float = 0.0
    """Seconds that the server may wait before it answers, beyond the timeout."""


class StreamLine(msgspec.Struct, frozen=True):
    """A line; the last one has the result or the problem."""

    progress: msgspec.Raw = msgspec.Raw()
    data: bytes = b""
    result: msgspec.Raw = msgspec.Raw()
    problem: msgspec.Raw = msgspec.Raw()


OnLine = Callable[[StreamLine], None]


class FailedAttempt(NamedTuple):
    """A failed attempt; ``pause`` is the shortest one that the server asks for."""

    error: HeadwaterError
    is_retried: bool
    pause: float = 0.0


class Server:
    """A Headwater server at a URL.

    Every method fills the placeholders of the path with the arguments after it. A request that is
    not repeatable is sent again only if the server cannot have begun it.
    """

    def __init__(
        self,
        url: str,
        key: str,
        timeout: float,
        retries: int,
        clock: Clock,
        transport: httpx.AsyncBaseTransport | None = None,
        ca_file: str = "",
    ) -> None:
        self._ca_file = ca_file
        self._base = _checked(url)
        self.url = mask_address(url).rstrip("/")
        """The URL for messages, without a password."""
        self.retries = retries
        self._key = key.strip()
        self._timeout = timeout
        self.clock = clock
        self._transport = transport
        self._http: httpx.AsyncClient | None = None

    def __repr__(self) -> str:
        return f"<Server {self.url}>"

    async def run(self, verb: Verb, group: Verbs, arguments: Arguments) -> Any:
        """Send a verb; return its result."""
        for name in verb.local:
            if arguments.get(name) is not None:
                raise local_argument(name, verb.name)
        sent = verb.sent(arguments)
        path = verb.path.format(**{name: quote(str(sent.pop(name)), safe="")
                                   for name in verb.path_names})  # fmt: skip
        body = None if verb.body is None else _encode(sent)
        kind = verb.answers
        request = Request(
            verb.method,
            path,
            sent if body is None else {},
            body,
            # What a repetition removes is not what was removed.
            is_repeatable=verb.is_repeatable
            and (
                verb.changes is None
                or verb.method == "PUT"
                or (verb.method == "DELETE" and kind is NoneType)
            ),
        )
        if verb.is_long:
            progress = arguments.get("progress")
            on_line = counted(progress) if verb.step is ProgressStep else shown(verb.step, progress)
            return verb.result(await self._lines(kind, request, on_line))
        try:
            response = await self.send(request)
        except HeadwaterError as error:
            if verb.reply is None or type(error) is not verb.reply.absent:
                raise
            return None
        return None if kind is NoneType else verb.result(self.decoded(kind, response))

    async def get(self, kind: type[T], path: str, *segments: object, **query: Any) -> T:
        """Read something."""
        request = Request("GET", _filled(path, segments), query, None, is_repeatable=True)
        return self.decoded(kind, await self.send(request))

    async def post(
        self, kind: type[T], path: str, *segments: object, body: object, is_repeatable: bool = False
    ) -> T:
        """Send a body; return the answer."""
        request = Request("POST", _filled(path, segments), {}, _encode(body), is_repeatable)
        return self.decoded(kind, await self.send(request))

    async def follow(
        self,
        kind: type[T],
        path: str,
        *segments: object,
        body: object,
        on_line: OnLine | None = None,
        is_repeatable: bool = False,
    ) -> T:
        """Run a long action; return its result, the last of the lines that the server sends.

        Cancelling this cancels the action on the server.
        """
        request = Request("POST", _filled(path, segments), {}, _encode(body), is_repeatable)
        return await self._lines(kind, request, on_line)

    async def upload(
        self,
        kind: type[T],
        path: str,
        *segments: object,
        file: Path,
        media_type: str,
        on_line: OnLine | None = None,
        **query: Any,
    ) -> T:
        """Send a file, and run the long action that reads it, as `follow` does."""
        path = _filled(path, segments)
        request = Request("POST", path, query, file, is_repeatable=False, media_type=media_type)
        return await self._lines(kind, request, on_line)

    async def _lines(self, kind: type[T], request: Request, on_line: OnLine | None) -> T:
        response = await self.send(request._replace(is_streamed=True))
        try:
            async for text in response.aiter_lines():
                line = self._line(text)
                if bytes(line.problem):
                    raise self._problem_of(bytes(line.problem), response)
                if bytes(line.result):
                    return msgspec.json.decode(line.result, type=kind)
                if on_line is not None:
                    on_line(line)
        except httpx.TransportError as error:
            raise ConnectionLostError(self.url, self._problem(error)) from error
        finally:
            await response.aclose()
        raise ConnectionLostError(self.url, "the response ended without a result")

    def _line(self, text: str) -> StreamLine:
        try:
            return msgspec.json.decode(text, type=StreamLine)
        except msgspec.DecodeError as error:
            raise UnexpectedResponseError(self.url, str(error)) from error

    def _problem_of(self, body: bytes, response: httpx.Response) -> HeadwaterError:
        problem = msgspec.json.decode(body, type=Problem)
        members = msgspec.json.decode(body, type=dict[str, Any])
        return error_of(problem, members, self.url, response.headers.get("x-request-id"))

    async def download(self, path: str, *segments: object, **query: Any) -> bytes:
        """Return the bytes of something."""
        request = Request("GET", _filled(path, segments), query, None, is_repeatable=True)
        return (await self.send(request)).content

    def decoded(self, kind: type[T], response: httpx.Response) -> T:
        """Return the body of a response in its type."""
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise UnexpectedResponseError(self.url, str(error)) from error

    async def send(
        self, request: Request, retries: int | None = None, accepted: Collection[int] = ()
    ) -> httpx.Response:
        """Send a request until it succeeds or fails for good; raise the error of the last attempt.

        ``retries`` is the number of further attempts, if not that of the server.
        """
        allowed = self.retries if retries is None else retries

        async def attempt(number: int) -> httpx.Response | Pause:
            outcome = await self._attempt(request, accepted)
            if isinstance(outcome, httpx.Response):
                return outcome
            is_last = not outcome.is_retried or number >= allowed
            if is_last or outcome.pause > _LONGEST_PAUSE_SECONDS:
                raise outcome.error
            pause = backoff(number, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
            return Pause(max(outcome.pause, pause))

        return await retried(attempt, self.clock)

    async def _attempt(
        self, request: Request, accepted: Collection[int]
    ) -> httpx.Response | FailedAttempt:
        http = self._open()
        body = _chunks(request.body) if isinstance(request.body, Path) else request.body
        sent = http.build_request(
            request.method,
            request.path,
            params=_parameters(request.query),
            content=body,
            headers=None if body is None else {"content-type": request.media_type},
            timeout=self._limits(request.waits),
        )
        # A large file takes as long as it takes; httpx limits the time of each part.
        limit = None if isinstance(request.body, Path) else self._timeout + request.waits
        try:
            async with asyncio.timeout(limit):
                response = await http.send(sent, stream=request.is_streamed)
                if not response.is_success:
                    await response.aread()
        except (httpx.TransportError, TimeoutError) as error:
            is_sent = not isinstance(error, _NOT_SENT)
            unreachable = ServerUnreachableError(self.url, self._problem(error))
            unreachable.__cause__ = error
            return FailedAttempt(unreachable, request.is_repeatable or not is_sent)
        if response.is_success or response.status_code in accepted:
            return response
        return self._failure(response, request)

    def _problem(self, error: Exception) -> str:
        if isinstance(error, TimeoutError | httpx.TimeoutException):
            return f"it did not answer within {self._timeout:g} s"
        # httpx raises its own errors from those of its transport, and these from those of TLS.
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, ssl.SSLError):
            cause = cause.__cause__ or cause.__context__
        if cause is not None and (meaning := explained(cause, "client")):
            return "; ".join(meaning)
        return str(error) or type(error).__name__

    def _failure(self, response: httpx.Response, request: Request) -> FailedAttempt:
        error = self._error(response)
        # Rate limits and limits of the load apply before a request is begun.
        is_refused = isinstance(error, RateLimitedError | OverloadedError)
        is_temporary = is_refused or response.status_code in _GATEWAY_STATUSES
        is_retried = is_temporary and (is_refused or request.is_repeatable)
        pause = retry_after_seconds(response.headers.get("retry-after", ""), self.clock.now())
        return FailedAttempt(error, is_retried, pause or 0.0)

    def _error(self, response: httpx.Response) -> HeadwaterError:
        media_type = response.headers.get("content-type", "").partition(";")[0]
        if media_type == MEDIA_TYPE:
            with suppress(msgspec.DecodeError):
                return self._problem_of(response.content, response)
        status = f"{response.status_code} {response.reason_phrase}"
        if response.has_redirect_location:
            return UnexpectedResponseError(
                self.url, f"status {status} to {response.headers['location']}"
            )
        return UnexpectedResponseError(self.url, f"status {status} with {media_type or 'no body'}")

    def _open(self) -> httpx.AsyncClient:
        if self._http is None:
            headers = {"user-agent": f"headwater/{version('headwater')}"}
            if self._key:
                headers["authorization"] = f"Bearer {self._key}"
            base, auth = without_credentials(httpx.URL(self._base))
            self._http = httpx.AsyncClient(
                base_url=base,
                auth=auth,
                headers=httpx.Headers(headers, encoding="utf-8"),
                timeout=self._limits(),
                transport=self._transport,
                verify=self._trusted(),
            )
        return self._http

    def _trusted(self) -> ssl.SSLContext | bool:
        try:
            return client_context(self._ca_file) if self._ca_file else True
        except OSError as error:
            problem = "; ".join(explained(error, "client.ca_file") or (str(error),))
            raise ConfigError(f"client.ca_file cannot be used: {problem}") from error

    def _limits(self, waits: float = 0.0) -> httpx.Timeout:
        return httpx.Timeout(self._timeout + waits, connect=min(self._timeout, _CONNECT_SECONDS))

    async def close(self) -> None:
        """Close the connections; the next request opens others."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()


class ServerVerbs(Verbs):
    """Verbs of a client that send requests of their own."""

    @property
    def _server(self) -> Server:
        return cast("Server", self._executor)


def sending(
    verb: Callable[Concatenate[V, P], Coroutine[Any, Any, T]],
) -> Callable[
    [Callable[..., Coroutine[Any, Any, T]]], Callable[Concatenate[V, P], Coroutine[Any, Any, T]]
]:
    """Make a method the client's form of a verb, with the verb's signature and docstring.

    It is for verbs that are more than one request. The method gets all arguments by their names.
    """
    _, *parameters = inspect.signature(verb).parameters.values()
    signature = inspect.Signature(parameters)

    def mark(
        send: Callable[..., Coroutine[Any, Any, T]],
    ) -> Callable[Concatenate[V, P], Coroutine[Any, Any, T]]:
        @wraps(verb)
        def call(self: V, /, *args: P.args, **named: P.kwargs) -> Coroutine[Any, Any, T]:
            given = signature.bind(*args, **named)
            given.apply_defaults()
            return send(self, **given.arguments)

        return with_bar(call) if "progress" in signature.parameters else call

    return mark


def local_argument(name: str, verb: str) -> InvalidInputError:
    """Return the error of an argument that only callers in the process of a store can give."""
    return InvalidInputError(
        f"{name} cannot be sent to a server; leave it out, or call {verb} of a FeatureStore"
    )


def counted(progress: OnStep | None) -> OnLine | None:
    """Return a function that calls ``progress`` with the numbers of a line."""
    return shown(ProgressStep, progress and (lambda step: progress(step.done, step.total)))


def shown(kind: type[S], progress: Callable[[S], None] | None) -> OnLine | None:
    """Return a function that calls ``progress`` with the progress of a line, in its type."""
    if progress is None:
        return None
    decoder = msgspec.json.Decoder(kind | None)

    def show(line: StreamLine) -> None:
        step = decoder.decode(line.progress) if bytes(line.progress) else None
        if step is not None:
            progress(step)

    return show


def written(file: BinaryIO, then: OnLine | None = None) -> OnLine:
    """Return a function that writes the data of lines to a file."""

    def write(line: StreamLine) -> None:
        file.write(line.data)
        if then is not None:
            then(line)

    return write


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    """Read a file in parts, so that it may be larger than memory."""
    with file.open("rb") as opened:
        while part := await asyncio.to_thread(opened.read, _BYTES_AT_ONCE):
            yield part


def _checked(url: str) -> str:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        parsed = None  # the error's text may have a part of a password
    if parsed is None or parsed.scheme not in ("http", "https") or not parsed.host:
        raise ConfigError(
            f"{mask_address(url)!r} is not the URL of a server; write http://HOST:PORT or "
            "https://HOST, with the path below which the API is mounted, if any"
        ) from None
    return url.rstrip("/")


def _filled(path: str, segments: tuple[object, ...]) -> str:
    return path.format(*(quote(str(segment), safe="") for segment in segments))


def _parameters(query: Mapping[str, Any]) -> dict[str, str]:
    """Return the parameters that are not None, as a server reads them."""
    return {name: _text(value) for name, value in query.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
