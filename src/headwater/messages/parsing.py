"""Messages and answers in the providers' shapes, as neutral messages."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol, get_args, runtime_checkable

import msgspec
from msgspec.structs import replace

from headwater.errors import InvalidInputError
from headwater.messages.parts import (
    Blob,
    Message,
    Part,
    Reasoning,
    Role,
    TextPart,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.turns import Block, blob_of

_ROLES: dict[str, Role] = {role: role for role in get_args(Role)}
_ROLES |= {"developer": "system", "model": "assistant"}
_NEUTRAL = frozenset({"tool_call", "tool_call_response", "blob", "uri"})
_MARKS = ("cache_control", "prompt_cache_breakpoint")


@runtime_checkable
class Dumpable(Protocol):
    """An object of a provider's client: a Pydantic model."""

    def model_dump(self, *, exclude_none: bool) -> dict[str, Any]: ...


def messages_of(raw: object) -> tuple[Message, ...]:
    """Return messages in the neutral shape.

    Takes one message or many, in the shape of OpenAI's Chat Completions or Responses, of Anthropic,
    of Gemini, or neutral; dicts or objects of the providers' clients; also whole answers, whose
    messages have a finish reason.

    >>> from headwater.messages.parsing import messages_of
    >>> messages_of([{"role": "user", "content": "Where is my order?"}])[0].text
    'Where is my order?'

    Raises:
        InvalidInputError: A message has none of the shapes; the text says which one, and where.
    """
    # Lists first: to find that one has no method of a protocol takes as long as to read a message.
    if not isinstance(raw, list | tuple) and isinstance(raw, Message | Mapping | Dumpable):
        raw = [raw]
    if isinstance(raw, str | bytes) or not isinstance(raw, Iterable):
        raise InvalidInputError(
            f"messages are a list of messages, not {type(raw).__qualname__}; for one text, pass "
            '[{"role": "user", "content": text}]'
        )
    reader = _Reader()
    for index, message in enumerate(raw):
        at = f"messages[{index}]"
        if isinstance(message, Message):
            reader.add(message)
        else:
            reader.read(_fields(message, at), at)
    return tuple(reader.messages)


_SAYING = frozenset({"content", "parts", "tool_calls", "reasoning_content", "refusal"})
"""Fields of a message, of which each has one; its text may be None or empty."""


class _Reader:
    """Collects messages; calls of Gemini that have no id get one."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._open: dict[str, deque[str]] = defaultdict(deque)
        self._calls = 0
        self._joins = False

    def add(self, message: Message, *, joins: bool = False) -> None:
        """Add a message; neighbouring items of one answer are one message."""
        last = self.messages[-1] if self.messages and (joins or self._joins) else message
        if last is not message and last.role == message.role == "assistant":
            message = replace(message, parts=last.parts + message.parts)
            self.messages.pop()
        self.messages.append(message)
        self._joins = joins

    def read(self, fields: Block, at: str) -> None:
        if "choices" in fields:
            self._read_choices(fields, at)
        elif "candidates" in fields:
            for number, candidate in enumerate(_list(fields, "candidates", at)):
                self._read_candidate(candidate, f"{at}.candidates[{number}]")
        elif "parts" in fields:
            self._read_parts(fields, at)
        elif "role" in fields:
            self._read_message(fields, at)
        elif isinstance(fields.get("type"), str):
            self._read_item(fields, at)
        elif "output" in fields:
            self._read_response(fields, at)
        else:
            raise _invalid(at, "has no role")

    def _add_parts(
        self, role: Role, parts: Iterable[Part], reason: object = None, *, joins: bool = False
    ) -> None:
        """Add parts as a message; results, which Anthropic and Gemini send as the user's, first."""
        results: list[Part] = []
        others: list[Part] = []
        for part in parts:
            (results if isinstance(part, ToolResult) else others).append(part)
        if results:
            self.add(Message(role="tool", parts=tuple(results)))
        if others or not results:
            answer = Message(role=role, parts=tuple(others), finish_reason=_reason(reason))
            self.add(answer, joins=joins)

    def _read_choices(self, fields: Block, at: str) -> None:
        for number, choice in enumerate(_list(fields, "choices", at)):
            place = f"{at}.choices[{number}].message"
            message = _fields(choice.get("message"), place)
            self._read_message(message, place, choice.get("finish_reason"))

    def _read_response(self, fields: Block, at: str) -> None:
        items = _list(fields, "output", at)
        for number, item in enumerate(items):
            self.read(item, f"{at}.output[{number}]")
        details = fields.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else fields.get("status")
        if items:
            self.messages[-1] = replace(self.messages[-1], finish_reason=_reason(reason))
        self._joins = False

    def _read_message(self, fields: Block, at: str, reason: object = None) -> None:
        role = _role(fields, at)
        if not _SAYING.intersection(fields):
            raise _invalid(
                at, f"has none of {', '.join(sorted(_SAYING))}; write its text as content"
            )
        if role == "tool":
            id, content = _text(fields, "tool_call_id", at), fields.get("content")
            self._add_result(id, content, f"{at}.content")
            return
        parts: list[Part] = []
        thought = fields.get("reasoning_content") or fields.get("reasoning")
        if isinstance(thought, str):
            parts.append(Reasoning(content=thought))
        parts += _content(fields.get("content"), role, f"{at}.content")
        if isinstance(fields.get("refusal"), str):
            parts.append(TextPart(content=fields["refusal"]))
        for number, call in enumerate(_list(fields, "tool_calls", at)):
            parts.append(_chat_call(call, f"{at}.tool_calls[{number}]"))
        is_item = fields.get("type") == "message" and "stop_reason" not in fields
        self._add_parts(role, parts, reason or fields.get("stop_reason"), joins=is_item)

    def _read_item(self, item: Block, at: str) -> None:
        if item["type"] == "function_call_output":
            self._add_result(_text(item, "call_id", at), item.get("output"), f"{at}.output")
        else:
            self._add_parts("assistant", [_block(item, "assistant", at)], joins=True)

    def _add_result(self, id: str, content: object, at: str) -> None:
        result = ToolResult(id=id, response=_result(content, at))
        self.add(Message(role="tool", parts=(_marked(result, content),)))

    def _read_candidate(self, candidate: Block, at: str) -> None:
        content = {"role": "model"} | _fields(candidate.get("content") or {}, f"{at}.content")
        reason = candidate.get("finish_reason") or candidate.get("finishReason")
        self._read_parts(content | {"finish_reason": reason}, f"{at}.content")

    def _read_parts(self, fields: Block, at: str) -> None:
        role = _role({"role": "user"} | fields, at)
        parts: list[Part] = []
        for number, part in enumerate(_list(fields, "parts", at)):
            place = f"{at}.parts[{number}]"
            is_typed = "type" in part
            parts += [_block(part, role, place)] if is_typed else self._gemini(part, role, place)
        self._add_parts(role, parts, fields.get("finish_reason"))

    def _gemini(self, raw: Block, role: Role, at: str) -> Iterator[Part]:
        part = _camel({name: value for name, value in raw.items() if value is not None}, at)
        signature = part.pop("thought_signature", None)
        signed = {} if signature is None else {"thought_signature": msgspec.to_builtins(signature)}
        text = part.get("text")
        if part.get("thought") is True and isinstance(text, str):
            yield Reasoning(content=text, block={"thought": True, "text": text} | signed)
            return
        if signed:
            yield Reasoning(content="", block=signed)
        if "function_call" in part:
            call = _fields(part["function_call"], f"{at}.function_call")
            name = _text(call, "name", f"{at}.function_call")
            self._calls += 1
            id = _optional_text(call, "id", f"{at}.function_call") or f"{name}-{self._calls}"
            self._open[name].append(id)
            yield ToolCall(id=id, name=name, arguments=call.get("args") or {})
        elif "function_response" in part:
            yield self._gemini_result(part["function_response"], f"{at}.function_response")
        elif "inline_data" in part:
            blob = _camel(part["inline_data"], f"{at}.inline_data")
            mime_type = _text(blob, "mime_type", f"{at}.inline_data")
            data = _bytes(blob.get("data"), f"{at}.inline_data.data")
            yield Blob(mime_type=mime_type, content=data)
        elif "file_data" in part:
            file = _camel(part["file_data"], f"{at}.file_data")
            uri = _text(file, "file_uri", f"{at}.file_data")
            yield Uri(uri=uri, mime_type=_optional_text(file, "mime_type", f"{at}.file_data"))
        elif isinstance(text, str):
            if text or not signed:
                yield TextPart(content=text)
        else:
            yield _opaque(part, role, at, ", ".join(part) or "nothing")

    def _gemini_result(self, raw: object, at: str) -> ToolResult:
        fields = _fields(raw, at)
        name = _text(fields, "name", at)
        opened = self._open[name]
        id = _optional_text(fields, "id", at) or (opened[0] if opened else name)
        if id in opened:
            opened.remove(id)
        response = fields.get("response")
        match response:
            case {"error": error, **rest} if not rest:
                return ToolResult(id=id, response=error, is_error=True)
            case {"output": output, **rest} if not rest:
                return ToolResult(id=id, response=output)
        return ToolResult(id=id, response=response)


_SNAKE = {
    "functionCall": "function_call",
    "functionResponse": "function_response",
    "inlineData": "inline_data",
    "fileData": "file_data",
    "thoughtSignature": "thought_signature",
    "mimeType": "mime_type",
    "fileUri": "file_uri",
}
"""The names of Gemini's fields in JSON, and those of its client."""


def _content(content: object, role: Role, at: str) -> Iterator[Part]:
    if isinstance(content, str):
        yield TextPart(content=content)
    elif isinstance(content, Iterable) and not isinstance(content, Mapping):
        for number, block in enumerate(content):
            yield _block(_fields(block, f"{at}[{number}]"), role, f"{at}[{number}]")
    elif content is not None:
        raise _invalid(at, f"is text or a list of blocks, not {type(content).__qualname__}")


def _block(block: Block, role: Role, at: str) -> Part:
    """Return the part that a block of any provider is, by its type."""
    kind = block.get("type")
    is_neutral = kind in _NEUTRAL or (
        kind in ("text", "reasoning") and isinstance(block.get("content"), str)
    )
    if is_neutral:
        try:
            part: Part = msgspec.convert(block, Part)
        except msgspec.ValidationError as error:
            raise _invalid(at, str(error)) from error
        return part
    read = _BLOCKS.get(str(kind))
    if read is None:
        return _opaque(block, role, at, repr(kind))
    return _marked(read(block, at), [block])


def _opaque(block: Block, role: Role, at: str, kind: str) -> Part:
    """Return a block of an answer that only its provider understands, to be sent back unchanged."""
    if role != "assistant":
        raise _invalid(
            at, f"has a kind that is not supported: {kind}; pass texts, images, calls or results"
        )
    return Reasoning(content="", block=_own(block))


def _own(block: Block) -> Any:
    """Return a provider's own block without nulls, which the provider would refuse."""
    return msgspec.to_builtins({name: value for name, value in block.items() if value is not None})


def _chat_call(call: Block, at: str) -> ToolCall:
    function = _fields(call.get("function"), f"{at}.function")
    arguments = _arguments(function.get("arguments"))
    name = _text(function, "name", f"{at}.function")
    return ToolCall(id=_text(call, "id", at), name=name, arguments=arguments)


def _reasoning_item(block: Block, at: str) -> Reasoning:
    texts = [*_list(block, "summary", at), *_list(block, "content", at)]
    content = "\n\n".join(str(text.get("text", "")) for text in texts)
    return Reasoning(content=content, block=_own(block))


def _anthropic_image(block: Block, at: str) -> Part:
    source = _fields(block.get("source"), f"{at}.source")
    if source.get("type") == "url":
        return Uri(uri=_text(source, "url", f"{at}.source"))
    mime_type = _text(source, "media_type", f"{at}.source")
    return Blob(mime_type=mime_type, content=_bytes(source.get("data"), f"{at}.source.data"))


def _image(url: object, at: str) -> Part:
    if not isinstance(url, str) or not url:
        raise _invalid(at, "is the text of a URL; images by the id of a file are not supported")
    return blob_of(url) or Uri(uri=url)


def _thinking(block: Block, at: str) -> Reasoning:
    text = block.get("thinking")
    return Reasoning(content=text if isinstance(text, str) else "", block=dict(block))


def _anthropic_result(block: Block, at: str) -> ToolResult:
    response = _result(block.get("content"), f"{at}.content")
    is_error = block.get("is_error") is True
    return ToolResult(id=_text(block, "tool_use_id", at), response=response, is_error=is_error)


_BLOCKS: dict[str, Callable[[Block, str], Part]] = {
    **dict.fromkeys(
        ("text", "input_text", "output_text"),
        lambda block, at: TextPart(content=_text(block, "text", at, empty=True)),
    ),
    "refusal": lambda block, at: TextPart(content=_text(block, "refusal", at)),
    "image_url": lambda block, at: _image(
        _fields(block.get("image_url"), f"{at}.image_url").get("url"), f"{at}.image_url.url"
    ),
    "input_image": lambda block, at: _image(block.get("image_url"), f"{at}.image_url"),
    "image": _anthropic_image,
    "tool_use": lambda block, at: ToolCall(
        id=_text(block, "id", at),
        name=_text(block, "name", at),
        arguments=_arguments(block.get("input")),
    ),
    "function_call": lambda block, at: ToolCall(
        id=_text(block, "call_id", at),
        name=_text(block, "name", at),
        arguments=_arguments(block.get("arguments")),
    ),
    "tool_result": _anthropic_result,
    "thinking": _thinking,
    "redacted_thinking": _thinking,
    "reasoning": _reasoning_item,
}


def _arguments(arguments: object) -> Any:
    """Return the arguments of a call; text that a model wrote instead of JSON stays as it is."""
    if isinstance(arguments, str) and arguments:
        try:
            return msgspec.json.decode(arguments)
        except msgspec.DecodeError:
            return arguments
    return {} if arguments is None or arguments == "" else arguments


def _result(content: object, at: str) -> Any:
    """Return the result of a call: text if its blocks are nothing else."""
    if not isinstance(content, list | tuple):
        return "" if content is None else content
    blocks = [_fields(block, f"{at}[{number}]") for number, block in enumerate(content)]
    if all(block.get("type") in ("text", "input_text") for block in blocks):
        return "".join(_text(block, "text", at, empty=True) for block in blocks)
    return msgspec.to_builtins(blocks)


def _marked(part: Part, blocks: object) -> Part:
    """Return a part with the cache mark that the last of its blocks has."""
    last = blocks[-1] if isinstance(blocks, list | tuple) and blocks else None
    if isinstance(last, Mapping) and any(last.get(mark) for mark in _MARKS):
        return replace(part, cache=True)
    return part


def _fields(value: object, at: str) -> Block:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Dumpable):
        return value.model_dump(exclude_none=True)
    raise _invalid(
        at, f"is a dict or an object of a provider's client, not {type(value).__qualname__}"
    )


def _camel(value: object, at: str) -> Block:
    return {_SNAKE.get(name, name): field for name, field in _fields(value, at).items()}


def _list(fields: Block, name: str, at: str) -> list[Block]:
    value = fields.get(name)
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return [_fields(item, f"{at}.{name}[{number}]") for number, item in enumerate(value)]
    raise _invalid(f"{at}.{name}", f"is a list, not {type(value).__qualname__}")


def _text(fields: Block, name: str, at: str, *, empty: bool = False) -> str:
    value = fields.get(name)
    if isinstance(value, str) and (value or empty):
        return value
    raise _invalid(f"{at}.{name}", "is missing" if not value else f"is text, not {value!r}")


def _optional_text(fields: Block, name: str, at: str) -> str | None:
    return None if fields.get(name) is None else _text(fields, name, at, empty=True)


def _role(fields: Block, at: str) -> Role:
    role = fields.get("role")
    if not isinstance(role, str) or role not in _ROLES:
        raise _invalid(f"{at}.role", f"is one of {', '.join(_ROLES)}, not {role!r}")
    return _ROLES[role]


def _reason(reason: object) -> str | None:
    # Gemini's client has an enumeration, in capital letters.
    text = reason.value if isinstance(reason, Enum) else reason
    return text.lower() if isinstance(text, str) else None


def _bytes(data: object, at: str) -> bytes:
    if isinstance(data, bytes):
        return data
    try:
        return b64decode(data if isinstance(data, str) else "", validate=True)
    except Base64Error as error:
        raise _invalid(at, "is not base64") from error


def _invalid(at: str, problem: str) -> InvalidInputError:
    return InvalidInputError(f"{at} {problem}")
