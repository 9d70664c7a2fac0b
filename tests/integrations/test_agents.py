"""Pydantic AI and the Agents SDK of OpenAI: instructions, tools and recorded answers."""

from __future__ import annotations

import pickle
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import agents
import httpx
import pydantic_ai
import pytest
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.usage import Usage
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RequestUsage

from headwater import ContextItem, FeatureStore, context
from headwater.client import AsyncClient
from headwater.errors import InvalidInputError
from headwater.http.app import create_app
from headwater.integrations import openai_agents
from headwater.integrations.openai_agents import RecordedModel, context_instructions
from headwater.integrations.pydantic_ai import CurrentContext, search_tool
from headwater.messages.parts import Reasoning, ToolCall
from headwater.model.lineage import Context
from headwater.model.outcomes import Outcome, Response
from headwater.settings.schema import Settings
from tests.integrations.conftest import SearchArticles

Support = Callable[[str], Awaitable[Context]]
QUESTION = "When is a refund paid?"
ANSWER = "Within a week."


@pytest.fixture(autouse=True)
def untraced() -> Iterator[None]:
    """Keep the SDK from sending traces."""
    agents.set_tracing_disabled(disabled=True)
    yield
    agents.set_tracing_disabled(disabled=False)


@pytest.fixture
def support(store: FeatureStore, search_articles: SearchArticles) -> Support:
    @context(store)
    async def support(question: str) -> list[ContextItem]:
        return [ContextItem(f"Answer politely: {question}")]

    return support


async def outcomes(store: FeatureStore, ctx: Context) -> list[Outcome]:
    """Return the outcomes of a context, oldest first."""
    return sorted(await store.records.outcomes(ctx.context_id), key=lambda each: each.outcome_id)


async def responses(store: FeatureStore, ctx: Context) -> list[Response]:
    made = [each.response for each in await outcomes(store, ctx)]
    return [each for each in made if each is not None]


async def searching(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call the tool that searches, and then answer."""
    assert info.instructions == f"Answer politely: {QUESTION}"
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    usage = RequestUsage(input_tokens=20, output_tokens=3, cache_read_tokens=5)
    if any(isinstance(part, ToolReturnPart) for part in last.parts):
        parts: list[Any] = [ThinkingPart("It is there."), TextPart(ANSWER)]
        return ModelResponse(parts, usage=usage, finish_reason="stop", provider_response_id="r-2")
    return ModelResponse([ToolCallPart("search", {"query": QUESTION}, "call-1")], usage=usage)


@pytest.mark.both_environments
async def test_an_agent_of_pydantic_ai_gets_the_context_and_its_answers_are_recorded(
    store: FeatureStore, support: Support, index_articles: Callable[[], Awaitable[None]]
) -> None:
    await index_articles()
    tool = search_tool(store, "articles", top_k=1)
    agent = pydantic_ai.Agent(
        FunctionModel(searching), capabilities=[CurrentContext()], tools=[tool]
    )
    ctx = await support(QUESTION)
    async with ctx:
        result = await agent.run(QUESTION)
    assert result.output == ANSWER
    returned = [
        part.content
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    ]
    text = "A refund is paid within a week, to the card that was charged."
    assert returned == [[{"document": "refunds", "text": text}]]
    called, answered = await responses(store, ctx)
    (call,) = called.messages[0].parts
    assert call == ToolCall(id="call-1", name="search", arguments={"query": QUESTION})
    assert answered.messages[0].text == ANSWER
    assert answered.messages[0].parts[0] == Reasoning(content="It is there.")
    assert (answered.response_id, answered.finish_reasons) == ("r-2", ("stop",))
    assert answered.usage is not None
    assert (answered.usage.input, answered.usage.output, answered.usage.cache_read) == (20, 3, 5)
    assert answered.latency_ms is not None
    assert answered.model_asked == agent.model.model_name  # type: ignore[union-attr]


async def test_streams_and_failures_of_pydantic_ai_are_recorded(
    store: FeatureStore, support: Support
) -> None:
    async def stream(messages: list[ModelMessage], info: AgentInfo) -> Any:
        for word in ("Within ", "a ", "week."):
            yield word

    async def fail(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        raise ConnectionError("no model")

    capabilities = [CurrentContext()]
    streaming = pydantic_ai.Agent(FunctionModel(stream_function=stream), capabilities=capabilities)
    ctx = await support(QUESTION)
    async with ctx, streaming.run_stream(QUESTION) as run:
        assert [piece async for piece in run.stream_text()][-1] == ANSWER
    (answered,) = await responses(store, ctx)
    assert answered.messages[0].text == ANSWER
    failing = pydantic_ai.Agent(FunctionModel(fail), capabilities=capabilities)
    other = await support("Why?")
    async with other:
        with pytest.raises(ConnectionError):
            await failing.run(QUESTION)
    (outcome,) = await outcomes(store, other)
    assert outcome.kind == "error"
    assert outcome.response is not None
    assert outcome.response.error_type == "ConnectionError"


async def test_answers_are_recorded_through_a_client(store: FeatureStore, support: Support) -> None:
    agent = pydantic_ai.Agent(TestModel(custom_output_text=ANSWER), capabilities=[CurrentContext()])
    transport = httpx.ASGITransport(create_app(store))
    async with AsyncClient("http://localhost", settings=Settings(), transport=transport) as client:
        ctx = await client.assemble("support", {"question": QUESTION})
        async with ctx:
            await agent.run(QUESTION)
        (answered,) = await responses(store, ctx)
    assert answered.messages[0].text == ANSWER


@pytest.mark.both_environments
async def test_an_agent_of_the_agents_sdk_gets_the_context_and_its_answers_are_recorded(
    store: FeatureStore,
    support: Support,
    search_articles: SearchArticles,
    index_articles: Callable[[], Awaitable[None]],
) -> None:
    await index_articles()
    usage = Usage(requests=1, input_tokens=20, output_tokens=3, total_tokens=23)
    arguments = '{"query": "When is a refund paid?"}'
    script = ScriptedModel(
        [
            ModelStep(output=[function_call("search", arguments, call_id="call-1")], usage=usage),
            ModelStep(output=[assistant_message(ANSWER)], usage=usage, response_id="r-2"),
        ]
    )
    agent = agents.Agent(
        "support",
        instructions=context_instructions,
        model=RecordedModel(script),
        tools=[openai_agents.search_tool(store, search_articles, lang="en")],
    )
    ctx = await support(QUESTION)
    async with ctx:
        result = await agents.Runner.run(agent, QUESTION)
    assert result.final_output == ANSWER
    assert script.first_call is not None
    assert script.first_call.system_instructions == f"Answer politely: {QUESTION}"
    assert "A refund is paid within a week" in str(script.last_call)
    called, answered = await responses(store, ctx)
    (call,) = called.messages[0].parts
    assert isinstance(call, ToolCall)
    assert (call.id, call.name, call.arguments) == ("call-1", "search", {"query": QUESTION})
    assert (answered.messages[0].text, answered.response_id) == (ANSWER, "r-2")
    assert answered.usage is not None
    assert (answered.usage.input, answered.usage.output) == (20, 3)
    assert answered.latency_ms is not None


async def test_streams_and_failures_of_the_agents_sdk_are_recorded(
    store: FeatureStore, support: Support
) -> None:
    script = ScriptedModel([ModelStep(output=[assistant_message(ANSWER)])])
    agent = agents.Agent("a", instructions=context_instructions, model=RecordedModel(script))
    ctx = await support(QUESTION)
    async with ctx:
        run = agents.Runner.run_streamed(agent, QUESTION)
        assert [event async for event in run.stream_events()]
    assert run.final_output == ANSWER
    (answered,) = await responses(store, ctx)
    assert answered.messages[0].text == ANSWER
    script.enqueue(ModelStep.raise_error(ConnectionError("no model")))
    other = await support("Why?")
    async with other:
        with pytest.raises(ConnectionError):
            await agents.Runner.run(agent, QUESTION)
    (outcome,) = await outcomes(store, other)
    assert outcome.response is not None
    assert outcome.response.error_type == "ConnectionError"
    await RecordedModel(script).close()


async def test_without_a_context_instructions_are_refused_and_nothing_is_recorded(
    store: FeatureStore, support: Support
) -> None:
    with pytest.raises(InvalidInputError, match="inside of `async with ctx:`"):
        await pydantic_ai.Agent(TestModel(), capabilities=[CurrentContext()]).run(QUESTION)
    script = ScriptedModel([ModelStep(output=[assistant_message(ANSWER)])])
    refused = agents.Agent("a", instructions=context_instructions, model=RecordedModel(script))
    with pytest.raises(InvalidInputError, match="inside of `async with ctx:`"):
        await agents.Runner.run(refused, QUESTION)
    plain = agents.Agent("a", model=RecordedModel(script))
    assert (await agents.Runner.run(plain, QUESTION)).final_output == ANSWER
    assert (await store.list_contexts()).contexts == []


async def test_an_answer_that_cannot_be_recorded_is_logged_and_the_run_goes_on(
    store: FeatureStore, support: Support, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = pydantic_ai.Agent(TestModel(custom_output_text=ANSWER), capabilities=[CurrentContext()])
    copied = pickle.loads(pickle.dumps(await support(QUESTION)))
    async with copied:
        assert (await agent.run(QUESTION)).output == ANSWER
    assert await outcomes(store, copied) == []
    assert "answer of a model not recorded" in capsys.readouterr().err
