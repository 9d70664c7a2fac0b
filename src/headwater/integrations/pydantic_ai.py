"""Pydantic AI: the current context as instructions, recorded answers, and searches as a tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headwater.errors import MissingExtraError
from headwater.integrations.recording import AgentModelCall, current_instructions
from headwater.integrations.search import AnyStore, Searched, awaited, passages
from headwater.messages.parts import Message, Part, Reasoning, ToolCall
from headwater.messages.parts import TextPart as Text
from headwater.model.outcomes import Response, Usage

try:
    from pydantic_ai import RunContext, Tool
    from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler
    from pydantic_ai.messages import (
        BaseToolCallPart,
        ModelResponse,
        ModelResponsePart,
        TextPart,
        ThinkingPart,
    )
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.usage import RequestUsage
except ImportError as error:
    raise MissingExtraError("the capability of Pydantic AI", "pydantic-ai") from error


@dataclass
class CurrentContext(AbstractCapability[Any]):
    """A capability that gives an agent the current context and records what its model answers.

    The text of the context of the ``async with ctx:`` around a run is added to the instructions.
    Every answer of the model in this run is an outcome of that context, also one that calls tools;
    so is a failed request. If it cannot be recorded, that is logged and the run goes on.

    >>> agent = Agent("openai:gpt-5", capabilities=[CurrentContext()])
    >>> async with await support("ada", question):
    ...     result = await agent.run(question)
    """

    def get_instructions(self) -> Any:
        """Return the function that returns the text of the current context."""
        return current_instructions

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Record what became of a request."""
        call = AgentModelCall()
        try:
            answer = await handler(request_context)
        except Exception as error:
            await call.failed(error)
            raise
        asked = request_context.model.model_name
        await call.answered(lambda: _response(answer, asked))
        return answer


def search_tool(
    store: AnyStore,
    search: Searched,
    *,
    name: str = "search",
    description: str = "Search the documents. Returns the passages that match a query best.",
    **arguments: Any,
) -> Tool[Any]:
    """Return a tool that searches an index, or calls a declared retriever, for a query.

    ``store`` is a store or a client; ``arguments`` are options of ``store.search``, or arguments of
    the retriever for the parameters that do not take the query.

    >>> agent = Agent("openai:gpt-5", tools=[search_tool(store, "docs", top_k=3)])
    """

    async def found(query: str) -> list[dict[str, Any]]:
        return await awaited(store, passages(store, search, query, arguments))

    return Tool(found, name=name, description=description)


def _response(answer: ModelResponse, asked: str) -> Response:
    reason = answer.finish_reason
    message = Message(role="assistant", parts=tuple(map(_part, answer.parts)), finish_reason=reason)
    return Response(
        messages=(message,),
        response_id=answer.provider_response_id,
        provider=answer.provider_name,
        model_asked=asked,
        model=answer.model_name,
        finish_reasons=() if reason is None else (reason,),
        usage=_usage(answer.usage),
    )


def _part(part: ModelResponsePart) -> Part:
    match part:
        case TextPart():
            return Text(content=part.content)
        case BaseToolCallPart():
            return ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=part.args)
        case ThinkingPart():
            return Reasoning(content=part.content)
    # What only the provider understands, such as a file.
    return Reasoning(content="", block={"part_kind": part.part_kind})


def _usage(usage: RequestUsage) -> Usage | None:
    if not usage.has_values():
        return None
    return Usage(
        input=usage.input_tokens,
        output=usage.output_tokens,
        cache_read=usage.cache_read_tokens,
        cache_write=usage.cache_write_tokens,
        reasoning=usage.details.get("reasoning_tokens"),
    )
