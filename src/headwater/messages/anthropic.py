"""Requests as Anthropic's Messages API takes them."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from headwater.messages.parts import (
    Blob,
    ModelRequest,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.turns import (
    Block,
    Draft,
    Placed,
    Rendered,
    Turn,
    is_blocks,
    json_text,
    model_name,
    object_arguments,
    sendable_image,
)

DEFAULT_MAX_TOKENS = 4_096
"""The limit of an answer without `max_output`; the API needs one, and every model has this."""

# As documented in November 2026: models that take system messages between others.
_SYSTEM_MODELS = re.compile(r"claude-(opus-(4-[89]|[5-9])|fable-|mythos-)")
_MARK = {"cache_control": {"type": "ephemeral"}}
_MARKS = 4
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SCHEMES = frozenset({"https"})
_RESULT_BLOCKS = frozenset({"text", "image", "document", "search_result", "tool_reference"})
_OWN_BLOCKS = re.compile(r"(redacted_)?thinking|server_tool_use|.+_tool_result")
_SCHEMA = {"type": "object", "properties": {}}


def render_anthropic(request: ModelRequest) -> Rendered:
    """Return the arguments of ``client.messages.create``.

    Neighbours of one role are one message; results come first in theirs. System messages are the
    top-level ``system``, unless the model takes them at their place.
    """
    draft = Draft("anthropic", cache_mark=_MARK, cache_marks=_MARKS)
    model = request.model and model_name(request.model, "anthropic")
    tools = [_tool(draft, place, tool) for place, tool in enumerate(request.tools)]
    turns = _merged(draft.turns(request))
    inline = bool(model and _SYSTEM_MODELS.match(model))
    top: list[Turn] = []
    others: list[Turn] = []
    for number, turn in enumerate(turns):
        if turn.role != "system" or (inline and _is_placeable(turns, number)):
            others.append(turn)
            continue
        top.append(turn)
        if others:
            draft.lose("system_after_messages", turn.parts[0])
    system = [block for turn in top for block in _blocks(draft, turn)]
    # Turns that a moved system message stood between are neighbours now.
    messages = [
        {"role": turn.role, "content": _content(blocks)}
        for turn in _merged(others)
        if (blocks := _blocks(draft, turn))
    ]
    if not tools:
        # The API refuses calls in a request without tools.
        calls = [each for turn in others for each in turn.parts if isinstance(each.part, ToolCall)]
        called = dict.fromkeys(each.part.name for each in calls)
        tools = [{"name": name, "input_schema": _SCHEMA} for name in called]
        if calls:
            draft.lose("tool_not_defined", calls[0])
    body: Block = {
        "system": _content(system) if system else None,
        "messages": messages,
        "tools": tools or None,
        "model": model,
        "max_tokens": request.max_output or DEFAULT_MAX_TOKENS,
    }
    return draft.rendered({name: value for name, value in body.items() if value is not None})


def _merged(turns: list[Turn]) -> list[Turn]:
    merged: list[Turn] = []
    for role, parts in turns:
        said = "user" if role == "tool" else role
        if merged and merged[-1].role == said:
            merged[-1].parts.extend(parts)
        else:
            merged.append(Turn(said, [*parts]))
    for turn in merged:
        if turn.role == "user":
            turn.parts.sort(key=lambda placed: not isinstance(placed.part, ToolResult))
    return merged


def _is_placeable(turns: list[Turn], number: int) -> bool:
    """Return True if a system message follows one of the user, and none of the user follows it."""
    after = turns[number + 1].role if number + 1 < len(turns) else "assistant"
    return number > 0 and turns[number - 1].role == "user" and after == "assistant"


def _tool(draft: Draft, place: int, tool: Tool) -> Block:
    block: Block = {"name": tool.name, "input_schema": tool.parameters or _SCHEMA}
    if tool.description:
        block["description"] = tool.description
    return draft.mark(block, Placed(None, place, tool))


def _blocks(draft: Draft, turn: Turn) -> list[Block]:
    blocks = (_block(draft, turn, placed) for placed in turn.parts)
    return [block for block in blocks if block is not None]


def _block(draft: Draft, turn: Turn, placed: Placed) -> Block | None:
    block: Block
    match placed.part:
        case TextPart(content=text):
            block = {"type": "text", "text": text}
        case Blob() | Uri():
            if (source := _source(draft, turn, placed)) is None:
                return None
            block = {"type": "image", "source": source}
        case ToolCall(id=id, name=name):
            block = {"type": "tool_use", "id": id, "name": name}
            block["input"] = object_arguments(draft, placed)
        case ToolResult(id=id, response=response):
            content: Any = response if is_blocks(response, _RESULT_BLOCKS) else json_text(response)
            block = {"type": "tool_result", "tool_use_id": id, "content": content}
            if placed.part.is_error:
                block["is_error"] = True
        case Reasoning(block={"type": str(kind)} as own) if _OWN_BLOCKS.fullmatch(kind):
            return draft.unmarked(dict(own), placed)
        case _:
            draft.lose("reasoning_dropped", placed)
            return None
    return draft.mark(block, placed)


def _source(draft: Draft, turn: Turn, placed: Placed) -> Block | None:
    if turn.role != "user":
        draft.lose("image_role_unsupported", placed)
        return None
    image = sendable_image(draft, placed, types=_IMAGES, schemes=_SCHEMES)
    if isinstance(image, Uri):
        return {"type": "url", "url": image.uri}
    if image is None:
        return None
    data = b64encode(image.content).decode()
    return {"type": "base64", "media_type": image.mime_type, "data": data}


def _content(blocks: list[Block]) -> str | list[Block]:
    if len(blocks) == 1 and blocks[0].keys() == {"type", "text"}:
        return str(blocks[0]["text"])
    return blocks
