"""The Agents SDK of OpenAI: context as instructions, recorded answers, and searches as a tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec

from headwater.errors import MissingExtraError
from headwater.integrations.answers import RESPONSES, response_of
from headwater.integrations.recording import AgentModelCall, current_instructions
from headwater.integrations.search import AnyStore, Searched, awaited, passages
from headwater.model.outcomes import Response

try:
    from agents import Agent, FunctionTool, Model, ModelResponse, RunContextWrapper, function_tool
    from agents.items import TResponseStreamEvent
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from agents.usage import Usage as TotalUsage
    from openai.types.responses import Response as Streamed
    from openai.types.responses import ResponseUsage
    from pydantic import BaseModel
except ImportError as error:
    raise MissingExtraError("the model of the Agents SDK", "openai-agents") from error


def context_instructions(run: RunContextWrapper[Any], agent: Agent[Any]) -> str:
    """Return the text of the current context, for the ``instructions`` of an agent.

    >>> agent = Agent("support", instructions=context_instructions)
    >>> async with await support("ada", question):
    ...     result = await Runner.run(agent, question)
    """
    return current_instructions()


class RecordedModel(Model):
    """A model whose answers are outcomes of the context of the ``async with ctx:`` around a run.

    Answers that call tools, streams and failed calls are recorded, too. If one cannot be recorded,
    that is logged and the run goes on.

    >>> model = RecordedModel(OpenAIResponsesModel("gpt-5", openai_client=AsyncOpenAI()))
    >>> agent = Agent("support", instructions=context_instructions, model=model)
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        """Return the answer of the model, after recording it."""
        call = AgentModelCall()
        try:
            answer = await self._model.get_response(*args, **options)
        except Exception as error:
            await call.failed(error)
            raise
        await call.answered(partial(self._response, answer, answer.response_id))
        return answer

    async def stream_response(
        self, *args: Any, **options: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Yield the events of an answer, and record it with the last one."""
        call = AgentModelCall()
        try:
            async for event in self._model.stream_response(*args, **options):
                if event.type in ("response.completed", "response.incomplete", "response.failed"):
                    await call.answered(partial(self._response, event.response, event.response.id))
                yield event
        except Exception as error:
            await call.failed(error)
            raise

    async def close(self) -> None:
        """Close the model."""
        await self._model.close()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the model."""
        return self._model.get_retry_advice(request)

    def _response(self, answer: ModelResponse | Streamed, response_id: str | None) -> Response:
        items = [_plain(item) for item in answer.output]
        plain = {"id": response_id, "output": items, "usage": _usage(answer.usage)}
        if isinstance(answer, Streamed):
            plain |= {"model": answer.model, "status": answer.status}
        return response_of(RESPONSES, plain)


def search_tool(
    store: AnyStore,
    search: Searched,
    *,
    name: str = "search",
    description: str = "Search the documents. Returns the passages that match a query best.",
    **arguments: Any,
) -> FunctionTool:
    """Return a tool that searches an index, or calls a declared retriever, for a query.

    ``store`` is a store or a client; ``arguments`` are options of ``store.search``, or arguments of
    the retriever for the parameters that do not take the query.

    >>> agent = Agent("support", tools=[search_tool(store, "docs", top_k=3)])
    """

    async def found(query: str) -> str:
        results = await awaited(store, passages(store, search, query, arguments))
        return msgspec.json.encode(results).decode()

    return function_tool(found, name_override=name, description_override=description)


def _plain(value: Any) -> Any:
    """Return an object of the SDK as JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_none=True, warnings=False)
    return value


def _usage(usage: TotalUsage | ResponseUsage | None) -> dict[str, Any] | None:
    """Return billed tokens; the SDK has zeros where a model tells none."""
    if usage is None or usage.input_tokens == usage.output_tokens == 0:
        return None
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_tokens_details": _plain(usage.input_tokens_details),
        "output_tokens_details": _plain(usage.output_tokens_details),
    }
