"""Clients of the SDKs of OpenAI and Anthropic record what models answer to contexts."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import anthropic
import openai
import pytest

import headwater
from headwater import Context, ContextItem, FeatureStore, Outcome, Response, TextPart, ToolCall
from headwater.errors import InvalidInputError
from headwater.testing import ModelServer

pytestmark = pytest.mark.both_environments

ANSWER = "A parcel takes two days."
QUESTION = "How long does a parcel take?"
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}}

Ask = Callable[..., Any]
# Clients are `Any` in signatures: types of the SDKs do not know ``context=``.


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    """Yield a server in the wire formats of both SDKs."""
    with ModelServer() as server:
        yield server


@pytest.fixture
def support(store: FeatureStore) -> Callable[..., Any]:
    """Return a context that is messages."""

    @store.context(max_tokens=500, model="gpt-4o", max_output=100)
    async def support(question: str, *, tool: bool = False) -> list[ContextItem]:
        look_up = ContextItem.tool("look_up", SCHEMA, "Looks an article up.")
        return [
            ContextItem(f"A refund takes a week. {ANSWER}", role="system", required=True),
            ContextItem(question, role="user", required=True),
            *([look_up] if tool else []),
        ]

    return support


@pytest.fixture
async def ctx(support: Callable[..., Any]) -> Context:
    """Return an assembled context."""
    context: Context = await support(QUESTION)
    return context


def options(server: ModelServer, path: str = "") -> dict[str, Any]:
    return {"base_url": server.url + path, "api_key": "local", "max_retries": 0}


@pytest.fixture
async def gpt(server: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """Yield a wrapped client."""
    async with openai.AsyncOpenAI(**options(server, "/v1")) as client:
        yield headwater.wrap(client)


@pytest.fixture
async def claude(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    """Yield a wrapped client."""
    async with anthropic.AsyncAnthropic(**options(server)) as client:
        yield headwater.wrap(client)


@pytest.fixture
def blocking_gpt(server: ModelServer) -> Iterator[openai.OpenAI]:
    """Yield a wrapped client."""
    with openai.OpenAI(**options(server, "/v1")) as client:
        yield headwater.wrap(client)


@pytest.fixture
def blocking_claude(server: ModelServer) -> Iterator[anthropic.Anthropic]:
    """Yield a wrapped client."""
    with anthropic.Anthropic(**options(server)) as client:
        yield headwater.wrap(client)


@pytest.fixture(params=["chat", "responses", "messages"])
def ask(request: pytest.FixtureRequest, gpt: Any, claude: Any) -> Ask:
    """Return a function that sends a context to an API, and the body of the request."""
    return asking(request.param, gpt, claude)


@pytest.fixture(params=["chat", "responses", "messages"])
def ask_blocking(
    request: pytest.FixtureRequest,
    blocking_gpt: Any,
    blocking_claude: Any,
) -> Ask:
    """Return a function that sends a context to an API, and waits."""
    return asking(request.param, blocking_gpt, blocking_claude)


def asking(api: str, gpt: Any, claude: Any) -> Ask:
    def ask(asked: Context, **changes: Any) -> Any:
        if api == "chat":
            if changes.get("stream"):
                changes = {"stream_options": {"include_usage": True}, **changes}
            return gpt.chat.completions.create(**{**asked.to_openai(), **changes})
        if api == "responses":
            return gpt.responses.create(**{**asked.to_openai_responses(), **changes})
        return claude.messages.create(**{**asked.to_anthropic(), **changes})

    return ask


async def recorded(store: FeatureStore, context: Context, count: int = 1) -> list[Outcome]:
    """Return the outcomes of a context when there are as many."""
    async with asyncio.timeout(30):
        while len(found := await store.records.outcomes(context.context_id)) < count:  # noqa: ASYNC110 - others record
            await asyncio.sleep(0.01)
    assert len(found) == count
    return found


async def response_to(store: FeatureStore, context: Context) -> Response:
    """Return the recorded answer of a context."""
    (outcome,) = await recorded(store, context)
    assert outcome.response is not None
    return outcome.response


def text_of(response: Response) -> str:
    return "".join(message.text for message in response.messages)


async def test_an_answer_is_recorded(store: FeatureStore, ctx: Context, ask: Ask) -> None:
    async with ctx:
        await ask(ctx)
    response = await response_to(store, ctx)
    assert text_of(response) == ANSWER
    assert response.model_asked == "gpt-4o"
    assert response.model in ("gpt-4o", "gpt-4o-2026-08-01")
    assert response.finish_reasons in (("stop",), ("completed",), ("end_turn",))
    assert response.usage is not None
    assert response.usage.output == 6
    assert 6 in response.usage.raw.values()
    assert response.latency_ms is not None
    assert response.first_token_ms is None
    assert response.response_id is not None


async def test_a_stream_is_recorded_as_the_whole_answer_with_the_time_of_its_first_token(
    store: FeatureStore, ctx: Context, ask: Ask
) -> None:
    async with ctx:
        stream = await ask(ctx, stream=True)
    async for _ in stream:
        pass
    response = await response_to(store, ctx)
    assert text_of(response) == ANSWER
    assert response.usage is not None
    assert response.usage.output == 6
    assert response.first_token_ms is not None
    assert response.latency_ms is not None
    assert 0 < response.first_token_ms < response.latency_ms


async def test_blocking_clients_record_too(
    store: FeatureStore, ctx: Context, ask_blocking: Ask
) -> None:
    def chat() -> None:
        with ctx:
            ask_blocking(ctx)
            for _ in ask_blocking(ctx, stream=True):
                pass

    await asyncio.to_thread(chat)
    for outcome in await recorded(store, ctx, 2):
        assert outcome.response is not None
        assert text_of(outcome.response) == ANSWER


async def test_a_blocking_client_in_async_code_does_not_wait_for_its_own_thread(
    store: FeatureStore, ctx: Context, ask_blocking: Ask
) -> None:
    async with ctx:
        ask_blocking(ctx)
    assert text_of(await response_to(store, ctx)) == ANSWER


async def test_a_tool_call_of_a_stream_is_put_together(
    store: FeatureStore, support: Callable[..., Any], ask: Ask
) -> None:
    context = await support(QUESTION, tool=True)
    async for _ in await ask(context, stream=True, context=context):
        pass
    response = await response_to(store, context)
    (call,) = response.messages[0].parts
    assert isinstance(call, ToolCall)
    assert (call.name, call.arguments) == ("look_up", {"query": QUESTION})
    assert call.id


async def test_what_was_predicted_is_not_compared_with_another_request(
    store: FeatureStore, ctx: Context, gpt: Any
) -> None:
    body = ctx.to_openai()
    async with ctx:
        await gpt.chat.completions.create(**body)
        more = [*body["messages"], {"role": "user", "content": "And by train? " * 20}]
        await gpt.chat.completions.create(**body | {"messages": more})
        tool = {"type": "function", "function": {"name": "go", "description": "Go. " * 50}}
        await gpt.chat.completions.create(**body | {"tools": [*body.get("tools", ()), tool]})
    predicted = [outcome.predicted for outcome in await store.records.outcomes(ctx.context_id)]
    assert predicted == [ctx.tokens, None, None]


async def test_the_billed_tokens_are_stored_beside_the_predicted_ones(
    store: FeatureStore, ctx: Context, gpt: Any
) -> None:
    async with ctx:
        await gpt.chat.completions.create(**ctx.to_openai())
    (outcome,) = await recorded(store, ctx)
    assert outcome.response is not None
    assert outcome.response.usage is not None
    assert outcome.predicted == outcome.response.usage.input == ctx.tokens


async def test_the_helpers_of_the_sdks_record_once(
    store: FeatureStore,
    ctx: Context,
    gpt: Any,
    claude: Any,
) -> None:
    async with ctx:
        await gpt.chat.completions.parse(**ctx.to_openai())
        async with gpt.chat.completions.stream(**ctx.to_openai()) as chat:
            await chat.get_final_completion()
        async with gpt.responses.stream(**ctx.to_openai_responses()) as response:
            await response.get_final_response()
        async with claude.messages.stream(**ctx.to_anthropic()) as message:
            assert await message.get_final_text() == ANSWER
        raw = await gpt.chat.completions.with_raw_response.create(**ctx.to_openai())
        assert raw.parse() is raw.parse()
        async with claude.messages.with_streaming_response.create(**ctx.to_anthropic()) as read:
            await read.parse()
    outcomes = await recorded(store, ctx, 6)
    assert {text_of(each.response) for each in outcomes if each.response} == {ANSWER}


async def test_a_helper_belongs_to_the_context_that_it_was_called_for(
    store: FeatureStore, ctx: Context, claude: Any
) -> None:
    async with ctx:
        manager = claude.messages.stream(**ctx.to_anthropic())
    async with manager as stream:
        await stream.until_done()
    assert text_of(await response_to(store, ctx)) == ANSWER


async def test_an_error_of_the_sdk_is_recorded_and_reaches_the_caller(
    store: FeatureStore, ctx: Context, ask: Ask
) -> None:
    with pytest.raises((openai.RateLimitError, anthropic.RateLimitError)):
        await ask(ctx, model="rate-limited", context=ctx)
    (outcome,) = await recorded(store, ctx)
    assert outcome.kind == "error"
    assert outcome.response is not None
    assert outcome.response.error_type == "RateLimitError"
    assert outcome.response.model_asked == "rate-limited"


async def test_a_stream_that_breaks_off_is_an_error_with_what_came(
    store: FeatureStore, ctx: Context, gpt: Any
) -> None:
    stream = await gpt.chat.completions.create(
        **{**ctx.to_openai(), "model": "cut-off", "stream": True}, context=ctx
    )
    with pytest.raises(openai.APIConnectionError):
        async for _ in stream:
            pass
    (outcome,) = await recorded(store, ctx)
    assert outcome.kind == "error"
    assert outcome.response is not None
    assert outcome.response.error_type == "APIConnectionError"
    assert outcome.response.messages[0].parts == (TextPart(content="A parcel takes two "),)


async def test_a_stream_that_is_closed_early_records_what_came(
    store: FeatureStore, ctx: Context, ask: Ask
) -> None:
    async with await ask(ctx, stream=True, context=ctx) as stream:
        async for event in stream:
            if "parcel" in repr(event):
                break
    (outcome,) = await recorded(store, ctx)
    assert outcome.kind == "response"
    assert outcome.response is not None
    assert outcome.response.finish_reasons == ("abandoned",)
    assert ANSWER.startswith(text_of(outcome.response))
    assert text_of(outcome.response) != ANSWER


async def test_a_stream_that_is_dropped_is_recorded(
    store: FeatureStore, ctx: Context, ask: Ask
) -> None:
    stream = await ask(ctx, stream=True, context=ctx)
    del stream
    gc.collect()
    response = await response_to(store, ctx)
    assert response.finish_reasons == ("abandoned",)


async def test_a_cancelled_call_is_recorded(store: FeatureStore, ctx: Context, gpt: Any) -> None:
    with ModelServer() as held:
        client = gpt.with_options(base_url=held.url + "/v1")
        body = {**ctx.to_openai(), "model": "held"}
        call = asyncio.create_task(client.chat.completions.create(**body, context=ctx))
        await asyncio.to_thread(held.waiting.wait)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    (outcome,) = await recorded(store, ctx)
    assert outcome.kind == "error"
    assert outcome.response is not None
    assert outcome.response.error_type == "CancelledError"


async def test_a_call_without_a_context_is_sent_as_before(
    store: FeatureStore, ctx: Context, gpt: Any, server: ModelServer
) -> None:
    await gpt.chat.completions.create(**ctx.to_openai())
    await gpt.chat.completions.create(**ctx.to_openai(), context=ctx, extra_body={"top_k": 3})
    plain, carrying = server.requests[-2:]
    assert carrying == {**plain, "top_k": 3}
    await recorded(store, ctx, 1)


async def test_the_wrapped_client_is_of_the_same_class_and_its_copies_are_wrapped(
    store: FeatureStore, ctx: Context, server: ModelServer
) -> None:
    async with openai.AsyncOpenAI(**options(server, "/v1")) as client:
        wrapped = headwater.wrap(client)
        assert type(wrapped) is type(client)
        assert headwater.wrap(wrapped) is wrapped
        assert asyncio.iscoroutinefunction(wrapped.chat.completions.parse)
        async with ctx:
            await client.chat.completions.create(**ctx.to_openai())
            await wrapped.with_options(timeout=30).chat.completions.create(**ctx.to_openai())
    await recorded(store, ctx, 1)


def test_only_clients_of_the_two_sdks_can_be_wrapped() -> None:
    with pytest.raises(InvalidInputError, match="a client of the SDK of OpenAI or Anthropic"):
        headwater.wrap(object())


async def test_only_a_context_can_be_given_as_one(ctx: Context, gpt: Any) -> None:
    with pytest.raises(InvalidInputError, match="context= takes a context"):
        await gpt.chat.completions.create(**ctx.to_openai(), context=ctx.context_id)


async def test_the_innermost_context_gets_the_answer(
    store: FeatureStore, support: Callable[..., Any], gpt: Any
) -> None:
    outer, inner = await support(QUESTION), await support("When is a refund paid?")
    async with outer:
        async with inner:
            await gpt.chat.completions.create(**inner.to_openai())
        await gpt.chat.completions.create(**outer.to_openai())
    assert text_of(await response_to(store, inner)) == "A refund takes a week."
    assert text_of(await response_to(store, outer)) == ANSWER


async def test_each_of_many_concurrent_calls_has_its_own_context(
    store: FeatureStore, support: Callable[..., Any], gpt: Any
) -> None:
    async def chat(number: int) -> Context:
        context: Context = await support(f"What is {number}?")
        async with context:
            await gpt.responses.create(
                **context.to_openai_responses(), metadata={"number": str(number)}
            )
        return context

    contexts = await asyncio.gather(*(chat(number) for number in range(20)))
    ids = {(await response_to(store, context)).response_id for context in contexts}
    assert len(ids) == 20
