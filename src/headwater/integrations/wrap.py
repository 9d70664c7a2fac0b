"""`wrap`: a client of OpenAI or Anthropic that records the answers to contexts."""

from __future__ import annotations

import copy
import functools
import inspect
import time
import weakref
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, Self, TypeVar

import msgspec

from headwater.core.logging import log
from headwater.errors import InvalidInputError
from headwater.features.call_scope import current_replay
from headwater.integrations.answers import (
    CHAT,
    MESSAGES,
    RESPONSES,
    Api,
    ended,
    response_of,
)
from headwater.integrations.recording import AnswerRecorder, PendingAnswer
from headwater.messages.rendering import render
from headwater.messages.turns import Provider
from headwater.model.bound_contexts import BoundContext, current_context
from headwater.model.lineage import Context, PastContext
from headwater.model.new_outcomes import NewOutcome
from headwater.model.outcomes import Response

C = TypeVar("C")

_APIS = {"/chat/completions": CHAT, "/responses": RESPONSES, "/v1/messages": MESSAGES}
_SHAPES: dict[str, tuple[Provider, tuple[str, ...]]] = {
    "/chat/completions": ("openai", ("messages", "tools")),
    "/responses": ("openai_responses", ("input", "instructions", "tools")),
    "/v1/messages": ("anthropic", ("messages", "system", "tools")),
}
"""The shape of the requests of each API, and the fields whose tokens are counted."""
_RESOURCES = {
    "openai": (("chat", "completions"), ("responses",)),
    "anthropic": (("messages",), ("beta", "messages")),
}
_METHODS = ("create", "parse", "stream")
_BASES = {"SyncAPIClient": False, "AsyncAPIClient": True}
"""The classes that all clients of both SDKs extend, and whether they are async."""
_PROVIDERS = (
    ("azure.com", "azure.ai.openai"),
    ("amazonaws.com", "aws.bedrock"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("groq.com", "groq"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral_ai"),
    ("perplexity.ai", "perplexity"),
    ("x.ai", "x_ai"),
)
"""OpenTelemetry's names of providers that are used with the clients of others, by host."""
_CARRIED = "headwater_context"
"""The field of a request's extra body that holds its context until the request is sent."""
_RAW_HEADER = "X-Stainless-Raw-Response"
_ITERATOR = "_iterator"
"""The attribute of a stream of both SDKs that its other methods, and helpers, read events from."""
_WRAPPED = "_headwater_wrapped"


def wrap(client: C) -> C:
    """Return a client that records the answer of every call made for a context.

    Takes a client of the SDK of OpenAI or Anthropic, sync or async. A call belongs to the context
    of the ``async with ctx:`` or ``with ctx:`` around it, or to the one given as ``context=ctx``;
    other calls are not recorded. The returned client shares the connections of the given one and
    is of the same class. Streams, tool calls, errors and streams that are not read to their end
    are recorded, too. If an answer cannot be recorded, that is logged and the call succeeds.

    >>> client = wrap(openai.AsyncOpenAI())
    >>> async with ctx:
    ...     answer = await client.chat.completions.create(**ctx.to_openai())
    """
    sdk, is_async = _kind_of(client)
    if _WRAPPED in vars(client):
        return client
    wrapped: Any = copy.copy(client)
    for base in type(wrapped).__mro__:
        for name, attribute in vars(base).items():
            if isinstance(attribute, functools.cached_property):
                vars(wrapped).pop(name, None)  # made by and for the given client
    calls = _Calls(sdk, str(wrapped.base_url.host))
    post = wrapped.post
    options = wrapped.copy
    vars(wrapped).update(
        {
            _WRAPPED: True,
            "post": calls.awaiting(post) if is_async else calls.blocking(post),
            "copy": (again := _wrapping(options)),
            "with_options": again,
        }
    )
    for path in _RESOURCES[sdk]:
        resource = functools.reduce(getattr, path, wrapped)
        for name in set(_METHODS).intersection(dir(resource)):
            vars(resource)[name] = _taking_context(getattr(resource, name))
    return wrapped  # type: ignore[no-any-return]


def _kind_of(client: object) -> tuple[str, bool]:
    """Return the name of the SDK of a client, and whether it is async."""
    for base in type(client).__mro__:
        sdk = base.__module__.partition(".")[0]
        if sdk in _RESOURCES and base.__name__ in _BASES:
            return sdk, _BASES[base.__name__]
    raise InvalidInputError(
        f"wrap takes a client of the SDK of OpenAI or Anthropic, not {type(client).__qualname__}; "
        "record answers of others with ctx.add_outcome(answer=…)"
    )


def _wrapping(options: Callable[..., C]) -> Callable[..., C]:
    @functools.wraps(options)
    def copied(*args: Any, **kwargs: Any) -> C:
        return wrap(options(*args, **kwargs))

    return copied


def _taking_context(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method of a resource that takes ``context=``; without one, the current is used.

    Helpers send their request later, perhaps outside of the block of the context.
    """

    def carrying(options: dict[str, Any]) -> dict[str, Any]:
        given = options.pop("context", None)
        if given is not None and not isinstance(given, BoundContext):
            raise InvalidInputError(
                f"context= takes a context of a store or client, not {type(given).__qualname__}"
            )
        extra = options.get("extra_body") or {}
        chosen = given or extra.get(_CARRIED) or current_context()
        # With an id, `responses.stream` reads an answer that an earlier call was given.
        if chosen is None or "response_id" in options:
            return options
        return {**options, "extra_body": {**extra, _CARRIED: chosen}}

    if inspect.iscoroutinefunction(method):

        @functools.wraps(method)
        async def awaited(*args: Any, **options: Any) -> Any:
            return await method(*args, **carrying(options))

        return awaited

    @functools.wraps(method)
    def called(*args: Any, **options: Any) -> Any:
        return method(*args, **carrying(options))

    return called


class _Calls:
    """Records the calls of one client."""

    def __init__(self, sdk: str, host: str) -> None:
        named = [name for suffix, name in _PROVIDERS if host.endswith(suffix)]
        self._provider = named[0] if named else sdk

    def blocking(self, post: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of a sync client that sends requests, with recording."""

        @functools.wraps(post)
        def recorded(path: str, **request: Any) -> Any:
            call = self._call(path, request, is_async=False)
            if call is None:
                return post(path, **request)
            try:
                answer = post(path, **request)
            except BaseException as error:
                call.end(error=error).wait()
                raise
            if not call.watches(answer):
                call.end(answer=answer).wait()
            return answer

        return recorded

    def awaiting(self, post: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method of an async client that sends requests, with recording."""

        @functools.wraps(post)
        async def recorded(path: str, **request: Any) -> Any:
            call = self._call(path, request, is_async=True)
            if call is None:
                return await post(path, **request)
            try:
                answer = await post(path, **request)
            except Exception as error:
                await call.end(error=error).waited()
                raise
            except BaseException as error:  # a cancelled caller does not wait
                call.end(error=error)
                raise
            if not call.watches(answer):
                await call.end(answer=answer).waited()
            return answer

        return recorded

    def _call(self, path: str, request: dict[str, Any], *, is_async: bool) -> _Call | None:
        """Return the call that a request is, without its context; None if it is not recorded."""
        options = dict(request.get("options") or {})
        extra = dict(options.get("extra_json") or {})
        context = extra.pop(_CARRIED, None)
        if context is None:
            context = current_context()
        else:
            options.pop("extra_json")
            request["options"] = {**options, "extra_json": extra} if extra else options
        path = path.partition("?")[0]
        api = _APIS.get(path)
        if api is None or context is None or current_replay() is not None:
            return None
        try:
            call = _Call(api, self._provider, context, request, is_async=is_async)
            call.as_sent = _is_as_sent(context, request.get("body"), *_SHAPES[path])
            return call
        except Exception as error:  # noqa: BLE001 - recording breaks no call; a copy has no store
            log.warning("answer of a model not recorded", error=str(error))
            return None


class _Call:
    """One call of a model for a context: what came and when, recorded once."""

    def __init__(
        self,
        api: Api,
        provider: str,
        context: BoundContext,
        request: Mapping[str, Any],
        *,
        is_async: bool,
    ) -> None:
        headers = request.get("options", {}).get("headers")
        asked = request.get("body") or {}
        self.is_raw = isinstance(headers, Mapping) and _RAW_HEADER in headers
        self.is_stream = request.get("stream") is True
        self._is_async = is_async
        self._api = api
        self._provider = provider
        self._asked = asked.get("model") if isinstance(asked, Mapping) else None
        self.as_sent = True
        """Whether the messages are those of the context, and none besides."""
        self._events: list[tuple[float, Any]] = []
        self.is_reading = False
        self._recording: PendingAnswer | None = None
        self._recorder = AnswerRecorder(context, is_async=is_async)
        self._started = time.perf_counter()

    def end(
        self, *, answer: Any = None, error: BaseException | None = None, reason: str | None = None
    ) -> PendingAnswer:
        """Record the call, if this is its first end.

        ``reason`` says why a stream was not read to its end.
        """
        if self._recording is None:
            facts = functools.partial(self._facts, self._milliseconds(), answer, error, reason)
            self._recording = self._recorder.record(facts)
        return self._recording

    def watches(self, answer: Any) -> bool:
        """Return whether an answer is recorded when it is read; a plain one is there already."""
        try:
            if self.is_raw:
                self.watch_parsing(answer)
            elif self.is_stream:
                self.watch(answer)
        except Exception as error:  # noqa: BLE001 - of another version of the SDK; no call breaks
            log.warning("answer of a model not recorded", error=str(error))
        return self.is_raw or self.is_stream

    def watch(self, stream: Any) -> None:
        """Record a stream when it has ended, was closed or is gone."""
        events, response = getattr(stream, _ITERATOR), stream.response
        if self._is_async:
            setattr(stream, _ITERATOR, _AsyncEvents(self, events))
            response.aclose = self._closing_async(response.aclose, events)
        else:
            setattr(stream, _ITERATOR, _Events(self, events))
            response.close = self._closing(response.close, events)
        # The SDKs close a stream that is dropped while it is read, but not one that never was.
        weakref.finalize(stream, self.end, reason="abandoned").atexit = False

    def _closing(self, close: Callable[[], None], events: Any) -> Callable[[], None]:
        def closed() -> None:
            close()
            if not self.is_reading:
                recording = self.end(reason="abandoned")
                if not events.gi_running:  # it runs if Python collects the stream
                    recording.wait()

        return closed

    def _closing_async(
        self, close: Callable[[], Awaitable[None]], events: Any
    ) -> Callable[[], Awaitable[None]]:
        async def closed() -> None:
            if not self.is_reading and not events.ag_running:
                await events.aclose()
            await close()
            if not self.is_reading:
                recording = self.end(reason="abandoned")
                if not events.ag_running:  # it runs if Python collects the stream
                    await recording.waited()

        return closed

    def watch_parsing(self, raw: Any) -> None:
        """Record what a raw response is parsed into; one that is read as bytes is not recorded."""
        parse = raw.parse
        seen: list[Any] = []

        def taken(parsed: Any) -> Any:
            if not self.is_stream:
                self.end(answer=parsed)
            elif parsed not in seen:
                seen.append(parsed)
                self.watch(parsed)
            return parsed

        async def awaited(parsing: Coroutine[Any, Any, Any]) -> Any:
            return taken(await parsing)

        @functools.wraps(parse)
        def parsed(**options: Any) -> Any:
            result = parse(**options)
            return awaited(result) if inspect.iscoroutine(result) else taken(result)

        raw.parse = parsed

    def note(self, event: Any) -> Any:
        """Keep an event of a stream, with the time since the call; return it."""
        self._events.append((self._milliseconds(), event))
        self.is_reading = False
        return event

    def _milliseconds(self) -> float:
        return (time.perf_counter() - self._started) * 1000

    def _facts(
        self, latency_ms: float, answer: Any, error: BaseException | None, reason: str | None
    ) -> NewOutcome:
        response, first_ms = Response(), None
        if answer is not None:
            response = response_of(self._api, _plain(answer))
        elif self._events:
            events = [(at, _plain(event)) for at, event in self._events]
            first_ms = next((at for at, event in events if self._api.delta(event)), None)
            response = response_of(self._api, self._api.folded(event for _, event in events))
        if reason is not None:
            response = ended(response, reason)
        response = msgspec.structs.replace(
            response,
            provider=self._provider,
            model_asked=self._asked if isinstance(self._asked, str) else None,
            latency_ms=round(latency_ms, 3),
            first_token_ms=first_ms if first_ms is None else round(first_ms, 3),
            error_type=None if error is None else type(error).__name__,
        )
        if error is not None:
            return {"error": response}
        return {"answer": response, "as_sent": self.as_sent}


def _is_as_sent(
    context: Context | PastContext, body: object, shape: Provider, fields: Sequence[str]
) -> bool:
    """Return whether a request has what its context has; one without messages has nothing."""
    if context.request is None or not isinstance(body, Mapping):
        return False
    counted = render(context.request, shape).body
    return all((counted.get(field) or None) == _given(body.get(field)) for field in fields)


def _given(value: object) -> object:
    """Return a field of a request, None for the SDKs' marks of one that was left out."""
    return value or None if isinstance(value, str | list | tuple | dict) else None


class _Events:
    """The events of a stream, kept for its call as they are read."""

    def __init__(self, call: _Call, events: Iterator[Any]) -> None:
        self._call = call
        self._events = events

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        self._call.is_reading = True
        try:
            return self._call.note(next(self._events))
        except StopIteration:
            self._call.end().wait()
            raise
        except BaseException as error:
            self._call.end(error=error).wait()
            raise


class _AsyncEvents:
    """The events of an async stream, kept for its call as they are read."""

    def __init__(self, call: _Call, events: AsyncIterator[Any]) -> None:
        self._call = call
        self._events = events

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        self._call.is_reading = True
        try:
            return self._call.note(await anext(self._events))
        except StopAsyncIteration:
            await self._call.end().waited()
            raise
        except Exception as error:
            await self._call.end(error=error).waited()
            raise
        except BaseException:  # a cancelled caller does not wait
            self._call.end(reason="cancelled")
            raise


def _plain(value: Any) -> dict[str, Any]:
    """Return an object of an SDK as the JSON that it was made from."""
    plain: dict[str, Any] = value.to_dict(mode="json", warnings=False)
    return plain
