"""Requests with the prompt tokens that OpenAI billed for them, from public recordings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from headwater.messages.counting import RequestCounter
from headwater.messages.parts import (
    Message,
    ModelRequest,
    Part,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
)

FILE = Path(__file__).parent / "fixtures" / "usage.json"


class Recording(NamedTuple):
    """A request and what it cost."""

    source: str
    request: ModelRequest
    prompt_tokens: int

    @property
    def is_text(self) -> bool:
        """Whether the request has neither tools nor calls of tools."""
        parts = [part for message in self.request.messages for part in message.parts]
        return not self.request.tools and all(isinstance(part, TextPart) for part in parts)


def recordings() -> list[Recording]:
    """Return all recordings."""
    return [
        Recording(
            raw["source"],
            ModelRequest(
                model=raw["model"],
                messages=tuple(map(_message, raw["messages"])),
                tools=tuple(Tool(**tool["function"]) for tool in raw.get("tools", ())),
            ),
            raw["prompt_tokens"],
        )
        for raw in msgspec.json.decode(FILE.read_bytes())
    ]


def _message(raw: dict[str, Any]) -> Message:
    return Message(role=raw["role"], parts=tuple(_parts(raw)))


def _parts(raw: dict[str, Any]) -> Iterator[Part]:
    if raw["role"] == "tool":
        yield ToolResult(id=raw["tool_call_id"], response=raw["content"])
    elif raw.get("content"):
        yield TextPart(content=raw["content"])
    for call in raw.get("tool_calls", ()):
        arguments = msgspec.json.decode(call["function"]["arguments"])
        yield ToolCall(id=call["id"], name=call["function"]["name"], arguments=arguments)


def predicted(counter: RequestCounter, request: ModelRequest) -> int:
    """Return the count of a whole request by the counts of its parts."""
    tokens = counter.request_tokens + counter.message_tokens * len(request.messages)
    for message in request.messages:
        rest = [part for part in message.parts if not isinstance(part, TextPart)]
        tokens += counter.tokenizer.count(message.text) + sum(map(counter.part_tokens, rest))
    tools = counter.tools_tokens if request.tools else 0
    return tokens + tools + sum(map(counter.part_tokens, request.tools))
