"""Requests as OpenAI's APIs take them: Chat Completions, and Responses."""

from __future__ import annotations

import re
from typing import Any

from headwater.messages.parts import (
    Blob,
    ModelRequest,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    Uri,
)
from headwater.messages.turns import (
    Block,
    Draft,
    Placed,
    Provider,
    Rendered,
    Turn,
    data_url,
    is_blocks,
    json_text,
    model_name,
    sendable_image,
    without_images,
)

# As documented in November 2026. Of four marks that a request may write, OpenAI sets one itself.
_MARKED_MODELS = re.compile(r"(ft:)?gpt-(5\.[6-9]|5\.\d\d|[6-9]|\d\d)")
_MARK = {"prompt_cache_breakpoint": {"mode": "explicit"}}
_MARKS = 3
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_SCHEMES = frozenset({"https", "http"})
_CHAT_BLOCKS = frozenset({"text"})
_OWN = re.compile(r"reasoning|(?!function_call|tool_call).+_call")
_INPUT_BLOCKS = frozenset({"input_text", "input_image", "input_file"})


def render_chat(request: ModelRequest) -> Rendered:
    """Return the arguments of ``client.chat.completions.create``."""
    draft = _draft("openai", request)
    tools = [
        {"type": "function", "function": _function(draft, place, tool)}
        for place, tool in enumerate(request.tools)
    ]
    messages: list[Block] = []
    for turn in draft.turns(request):
        messages += _chat_messages(draft, turn)
    body: Block = {"messages": messages}
    return draft.rendered(body | _options(request, tools, "max_completion_tokens"))


def render_responses(request: ModelRequest) -> Rendered:
    """Return the arguments of ``client.responses.create``.

    A first message of the system becomes the instructions, unless it has a cache mark.
    """
    draft = _draft("openai_responses", request)
    # Without `strict`, the API would take every schema for a strict one.
    tools = [
        {"type": "function", "parameters": None, **_function(draft, place, tool), "strict": False}
        for place, tool in enumerate(request.tools)
    ]
    items: list[Block] = []
    for turn in draft.turns(request):
        items += _items(draft, turn)
    body: Block = {}
    if len(items) > 1 and items[0].get("role") == "system" and _is_text(items[0]):
        body["instructions"] = items.pop(0)["content"]
    body["input"] = items
    return draft.rendered(body | _options(request, tools, "max_output_tokens"))


def _draft(provider: Provider, request: ModelRequest) -> Draft:
    marked = request.model is not None and _MARKED_MODELS.match(_name(request.model))
    return Draft(provider, cache_mark=_MARK, cache_marks=_MARKS if marked else 0)


def _options(request: ModelRequest, tools: list[Block], max_output: str) -> Block:
    options: dict[str, Any] = {
        "tools": tools or None,
        "model": None if request.model is None else _name(request.model),
        max_output: request.max_output,
        "prompt_cache_key": request.cache_key,
    }
    return {name: value for name, value in options.items() if value is not None}


def _name(model: str) -> str:
    # The open models are known by this name everywhere else.
    is_open = model.startswith("openai/gpt-oss")
    return model if is_open else model_name(model, "openai", "azure")


def _function(draft: Draft, place: int, tool: Tool) -> Block:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return draft.unmarked(
        {name: value for name, value in function.items() if value}, Placed(None, place, tool)
    )


def _chat_messages(draft: Draft, turn: Turn) -> list[Block]:
    if turn.role == "tool":
        return [_chat_result(draft, placed) for placed in turn.parts]
    blocks: list[Block] = []
    calls: list[Block] = []
    for placed in turn.parts:
        match placed.part:
            case TextPart(content=text):
                blocks += _text(draft, turn, placed, {"type": "text", "text": text})
            case Blob() | Uri():
                if (url := _image_url(draft, turn, placed)) is not None:
                    block = {"type": "image_url", "image_url": {"url": url}}
                    blocks.append(draft.mark(block, placed))
            case ToolCall(id=id, name=name, arguments=arguments):
                function = {"name": name, "arguments": json_text(arguments)}
                call = {"id": id, "type": "function", "function": function}
                calls.append(draft.unmarked(call, placed))
            case Reasoning():
                draft.lose("reasoning_dropped", placed)
    message: Block = {"role": turn.role}
    if blocks:
        message["content"] = _content(blocks, "text")
    if calls:
        message["tool_calls"] = calls
    return [message] if len(message) > 1 else []


def _chat_result(draft: Draft, placed: Placed) -> Block:
    result = placed.part
    if result.is_error:
        draft.lose("tool_error_unmarked", placed)
    content: Any = result.response
    if not is_blocks(content, _CHAT_BLOCKS):
        content = without_images(draft, placed)
        content = [draft.mark({"type": "text", "text": json_text(content)}, placed)]
    else:
        content = [*content[:-1], draft.mark(dict(content[-1]), placed)]
    return {"role": "tool", "tool_call_id": result.id, "content": _content(content, "text")}


def _items(draft: Draft, turn: Turn) -> list[Block]:
    if turn.role == "tool":
        return [_output(draft, placed) for placed in turn.parts]
    items: list[Block] = []
    blocks: list[Block] = []

    def flush() -> None:
        if blocks:
            items.append({"role": turn.role, "content": _content(blocks[:], "input_text")})
            blocks.clear()

    for placed in turn.parts:
        match placed.part:
            case TextPart(content=text):
                blocks += _text(draft, turn, placed, {"type": "input_text", "text": text})
            case Blob() | Uri():
                if (url := _image_url(draft, turn, placed)) is not None:
                    block = {"type": "input_image", "image_url": url, "detail": "auto"}
                    blocks.append(draft.mark(block, placed))
            case ToolCall(id=id, name=name, arguments=arguments):
                flush()
                call = {"type": "function_call", "call_id": id, "name": name}
                call["arguments"] = json_text(arguments)
                items.append(draft.unmarked(call, placed))
            case Reasoning(block={"type": str(kind), "id": _} as block) if _OWN.fullmatch(kind):
                flush()
                items.append(draft.unmarked(dict(block), placed))
            case Reasoning():
                draft.lose("reasoning_dropped", placed)
    flush()
    return items


def _output(draft: Draft, placed: Placed) -> Block:
    result = placed.part
    if result.is_error:
        draft.lose("tool_error_unmarked", placed)
    output: Any = result.response
    if is_blocks(output, _INPUT_BLOCKS):
        output = [*output[:-1], draft.mark(dict(output[-1]), placed)]
    else:
        output = without_images(draft, placed)
        output = [draft.mark({"type": "input_text", "text": json_text(output)}, placed)]
    content = _content(output, "input_text")
    return {"type": "function_call_output", "call_id": result.id, "output": content}


def _text(draft: Draft, turn: Turn, placed: Placed, block: Block) -> list[Block]:
    # What the model itself has written cannot be marked.
    return [(draft.unmarked if turn.role == "assistant" else draft.mark)(block, placed)]


def _image_url(draft: Draft, turn: Turn, placed: Placed) -> str | None:
    if turn.role != "user":
        draft.lose("image_role_unsupported", placed)
        return None
    image = sendable_image(draft, placed, types=_IMAGES, schemes=_SCHEMES)
    return None if image is None else data_url(image)


def _content(blocks: list[Block], text: str) -> str | list[Block]:
    """Return blocks, or only their text if they are nothing else and have no cache mark."""
    if all(block.keys() == {"type", "text"} and block["type"] == text for block in blocks):
        return "".join(block["text"] for block in blocks)
    return blocks


def _is_text(item: Block) -> bool:
    return isinstance(item["content"], str)
