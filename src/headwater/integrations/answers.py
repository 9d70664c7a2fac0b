"""Answers of models as their APIs send them, whole or as the events of a stream; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from headwater.errors import InvalidInputError
from headwater.messages.parsing import messages_of
from headwater.messages.parts import Message, Reasoning
from headwater.model.outcomes import Response, Usage

Json = dict[str, Any]


class Api(NamedTuple):
    """An API of a provider: how its answers are read."""

    provider: str
    folded: Callable[[Iterable[Json]], Json]
    """Returns the answer that the events of a stream add up to."""
    usage: Mapping[str, str]
    """Where each number of a `Usage` is in the provider's object."""
    delta: Callable[[Json], bool]
    """Returns whether an event has a piece of the answer."""
    is_cached_apart: bool = False
    """Whether cached tokens are in addition to the input."""


def response_of(api: Api, answer: Json) -> Response:
    """Return what an answer says, in our words."""
    try:
        messages = messages_of(answer)
    except InvalidInputError:
        # A part of a call, or a kind of answer that is newer than this code: kept as it came.
        opaque = Reasoning(content="", block=answer)
        messages = (Message(role="assistant", parts=(opaque,)),)
    return Response(
        messages=messages,
        response_id=answer.get("id"),
        model=answer.get("model"),
        finish_reasons=tuple(each.finish_reason for each in messages if each.finish_reason),
        usage=_usage(api, answer.get("usage")),
    )


def ended(response: Response, reason: str) -> Response:
    """Return an answer whose stream was not read to its end, with the reason for it."""
    if response.finish_reasons:
        return response
    messages = tuple(
        msgspec.structs.replace(message, finish_reason=reason) for message in response.messages
    )
    return msgspec.structs.replace(response, messages=messages, finish_reasons=(reason,))


def _usage(api: Api, raw: Json | None) -> Usage | None:
    if raw is None:
        return None
    counts = {name: _at(raw, path) for name, path in api.usage.items()}
    if api.is_cached_apart and counts["input"] is not None:
        counts["input"] += (counts["cache_read"] or 0) + (counts["cache_write"] or 0)
    return Usage(raw=raw, **counts)


def _at(raw: Json, path: str) -> int | None:
    value: Any = raw
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, int) else None


# OpenAI's chat completions


def _fold_chat(events: Iterable[Json]) -> Json:
    answer: Json = {}
    choices: dict[int, Json] = {}
    for event in events:
        answer |= {key: value for key, value in event.items() if value is not None}
        for piece in event.get("choices") or ():
            choice = choices.setdefault(piece["index"], {"message": {"role": "assistant"}})
            _add(choice["message"], piece.get("delta") or {})
            choice["finish_reason"] = piece.get("finish_reason") or choice.get("finish_reason")
    answer["choices"] = [choices[index] for index in sorted(choices)]
    for choice in answer["choices"]:
        calls = choice["message"].get("tool_calls")
        if calls is not None:
            choice["message"]["tool_calls"] = [calls[index] for index in sorted(calls)]
    return answer


_WHOLE = {"role", "id", "type", "name", "index"}
"""Fields of a delta that are not continued: a later one replaces an earlier one."""


def _add(whole: Json, delta: Json) -> None:
    """Add a delta to what came before: texts continue, and lists are told apart by an index."""
    for key, value in delta.items():
        if value is None:
            continue
        if isinstance(value, dict):
            _add(whole.setdefault(key, {}), value)
        elif key == "tool_calls":
            calls = whole.setdefault(key, {})
            for place, call in enumerate(value):
                _add(calls.setdefault(call.get("index", place), {}), call)
        elif isinstance(value, str) and key not in _WHOLE:
            whole[key] = whole.get(key, "") + value
        else:
            whole[key] = value


def _has_chat_delta(event: Json) -> bool:
    deltas = [choice.get("delta") or {} for choice in event.get("choices") or ()]
    return any(value for delta in deltas for key, value in delta.items() if key != "role")


# OpenAI's responses


def _fold_response(events: Iterable[Json]) -> Json:
    answer: Json = {}
    items: dict[int, Json] = {}
    for event in events:
        kind, place = event["type"], event.get("output_index", 0)
        if "response" in event:
            answer = event["response"]
        if kind in ("response.output_item.added", "response.output_item.done"):
            items[place] = dict(event["item"])
        elif kind.endswith(".delta") and isinstance(event.get("delta"), str):
            item = items.setdefault(place, {"type": "message", "role": "assistant"})
            _add_delta(item, event["delta"])
    # Only the event at the end has the whole output and a status that is final.
    output = answer.get("output") or [items[place] for place in sorted(items)]
    status = answer.get("status")
    is_final = status not in ("in_progress", "queued")
    return {**answer, "output": output, "status": status if is_final else None}


def _add_delta(item: Json, text: str) -> None:
    if item["type"] == "message":
        content = item["content"] = item.get("content") or [{"type": "output_text", "text": ""}]
        content[-1]["text"] += text
    elif item["type"] == "reasoning":
        summary = item["summary"] = item.get("summary") or [{"type": "summary_text", "text": ""}]
        summary[-1]["text"] += text
    else:
        name = "input" if item["type"] == "custom_tool_call" else "arguments"
        item[name] = (item.get(name) or "") + text


# Anthropic's messages


def _fold_message(events: Iterable[Json]) -> Json:
    answer: Json = {}
    blocks: dict[int, Json] = {}
    for event in events:
        kind = event["type"]
        if kind == "message_start":
            answer = dict(event["message"])
        elif kind == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif kind == "content_block_delta":
            _add_block_delta(blocks[event["index"]], event["delta"])
        elif kind == "message_delta":
            answer |= event["delta"]
            # The numbers are those of the whole message so far; null means unchanged.
            counted = {key: value for key, value in event["usage"].items() if value is not None}
            answer["usage"] = {**(answer.get("usage") or {}), **counted}
    answer["content"] = [_with_input(blocks[index]) for index in sorted(blocks)]
    return answer


_CONTINUED = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _add_block_delta(block: Json, delta: Json) -> None:
    name = _CONTINUED.get(delta["type"])
    if name is not None:
        block[name] = block.get(name, "") + delta[name]


def _with_input(block: Json) -> Json:
    pieces = block.pop("partial_json", "")
    return {**block, "input": _json(pieces)} if pieces else block


def _json(text: str) -> Any:
    """Return the value of a JSON text, or the text itself if it is not whole."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _details(read: str, output: str, reasoning: str) -> Mapping[str, str]:
    return {
        "input": f"{read}_tokens",
        "output": f"{output}_tokens",
        "cache_read": f"{read}_tokens_details.cached_tokens",
        "cache_write": f"{read}_tokens_details.cache_write_tokens",
        "reasoning": f"{output}_tokens_details.{reasoning}",
    }


CHAT = Api(
    "openai",
    _fold_chat,
    _details("prompt", "completion", "reasoning_tokens"),
    _has_chat_delta,
)
RESPONSES = Api(
    "openai",
    _fold_response,
    _details("input", "output", "reasoning_tokens"),
    lambda event: event["type"].endswith(".delta"),
)
MESSAGES = Api(
    "anthropic",
    _fold_message,
    {
        **_details("input", "output", "thinking_tokens"),
        "cache_read": "cache_read_input_tokens",
        "cache_write": "cache_creation_input_tokens",
    },
    lambda event: event["type"] == "content_block_delta",
    is_cached_apart=True,
)
