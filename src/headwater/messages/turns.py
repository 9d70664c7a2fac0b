"""What all renderers share: turns with calls and results paired, cache marks, and losses."""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from mimetypes import guess_type
from typing import Any, Literal, NamedTuple
from urllib.parse import SplitResult, urlsplit

import msgspec
from msgspec.structs import replace

from headwater.messages.parts import (
    Blob,
    ModelRequest,
    Part,
    Reasoning,
    Role,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.texts import is_image_block

_encode = msgspec.json.Encoder(order="sorted").encode

Provider = Literal["openai", "openai_responses", "anthropic", "gemini"]
"""The shapes of a request, by the API that takes them."""

Block = dict[str, Any]
"""An object of a provider's API."""

LOSSES = {
    "arguments_wrapped": "arguments of a call are not an object and were put into one",
    "cache_mark_unsupported": "a cache mark cannot be set here and was left out",
    "image_role_unsupported": "an image was left out: messages of this role cannot have one",
    "image_type_unsupported": "an image of this type was left out",
    "image_url_unsupported": "an image was left out: it cannot be fetched by this URL",
    "reasoning_dropped": "reasoning that the provider did not write itself was left out",
    "role_changed": "a part was sent in the role that its kind has",
    "system_after_messages": "a system message after other messages was moved before them",
    "thought_signature_missing": "a call has no thought signature and was sent with a placeholder",
    "too_many_cache_marks": "a cache mark was left out: the provider takes only the last ones",
    "tool_call_without_result": "a call has no result, which the provider refuses",
    "tool_error_unmarked": "a failed tool's result was sent like that of a successful one",
    "tool_not_defined": "tools of calls are not in the request and were sent without a schema",
    "tool_result_moved": "a result was moved directly behind its call",
    "tool_result_without_call": "a result was left out: its call is not in the request",
}
"""What was lost, by the name of the loss."""


class RenderLoss(NamedTuple):
    """Something that a provider cannot be sent as it was declared, and where it stands.

    `message` and `part` are places in the request; `message` is None for a tool, whose place among
    the tools is `part`.
    """

    name: str
    provider: Provider
    message: int | None
    part: int

    def __str__(self) -> str:
        return f"{self.provider}: {LOSSES[self.name]} ({self.name})"


class Rendered(NamedTuple):
    """The keyword arguments of a provider's client, and what they do not express."""

    body: Block
    losses: tuple[RenderLoss, ...]


class Placed(NamedTuple):
    """A part, or a tool, and its place in the request."""

    message: int | None
    place: int
    part: Any


class Turn(NamedTuple):
    """Neighbouring parts of one role."""

    role: Role
    parts: list[Placed]


class Draft:
    """Collects the losses and the cache marks of one rendering."""

    def __init__(self, provider: Provider, *, cache_mark: Block, cache_marks: int) -> None:
        self._provider = provider
        self._mark, self._most = cache_mark, cache_marks
        self._marked: list[tuple[Block, Placed]] = []
        self._losses: list[RenderLoss] = []

    def lose(self, name: str, placed: Placed) -> None:
        """Note a loss."""
        self._losses.append(RenderLoss(name, self._provider, placed.message, placed.place))

    def mark(self, block: Block, placed: Placed) -> Block:
        """Return a block of a body, with the cache mark of its part."""
        if placed.part.cache:
            if self._most:
                block |= self._mark
                self._marked.append((block, placed))
            else:
                self.lose("cache_mark_unsupported", placed)
        return block

    def unmarked(self, block: Block, placed: Placed) -> Block:
        """Return a block that cannot have a cache mark."""
        if placed.part.cache:
            self.lose("cache_mark_unsupported", placed)
        return block

    def rendered(self, body: Block) -> Rendered:
        """Return the body with as many cache marks as the provider takes, the last ones."""
        for block, placed in self._marked[: -self._most or None]:
            for key in self._mark:
                del block[key]
            self.lose("too_many_cache_marks", placed)
        return Rendered(body, tuple(self._losses))

    def turns(self, request: ModelRequest) -> list[Turn]:
        """Return the parts by roles; the results of calls directly follow them.

        Blank texts are left out, and neighbouring texts are joined up to a cache mark. A result
        without its call is left out; so is a call without its result, unless it comes last and the
        caller may add the result.
        """
        turns: list[Turn] = []
        calls = False
        for place, message in enumerate(request.messages):
            number = len(turns)
            for part in message.parts:
                calls |= isinstance(part, ToolCall | ToolResult)
            for placed in self._joined(place, message.parts):
                role = _role(placed.part, message.role)
                if role != message.role and role != "tool":
                    self.lose("role_changed", placed)
                if len(turns) == number or turns[-1].role != role:
                    turns.append(Turn(role, []))
                turns[-1].parts.append(placed)
        return self._paired(turns) if calls else turns

    def _joined(self, message: int, parts: Iterable[Part]) -> Iterator[Placed]:
        text, last = "", 0
        for place, part in enumerate(parts):
            if isinstance(part, TextPart):
                text, last = text + part.content, place
                if not part.cache:
                    continue
                if text.strip():
                    yield Placed(message, place, TextPart(content=text, cache=True))
                else:
                    self.lose("cache_mark_unsupported", Placed(message, place, part))
            else:
                if text.strip():
                    yield Placed(message, last, TextPart(content=text))
                yield Placed(message, place, part)
            text = ""
        if text.strip():
            yield Placed(message, last, TextPart(content=text))

    def _paired(self, turns: list[Turn]) -> list[Turn]:
        open_calls: dict[str, deque[tuple[int, Placed]]] = defaultdict(deque)
        results: dict[int, list[Placed]] = defaultdict(list)
        between = -1
        for number, (role, parts) in enumerate(turns):
            if role != "tool":
                between = number
            for placed in parts:
                if isinstance(placed.part, ToolCall):
                    open_calls[placed.part.id].append((number, placed))
                elif isinstance(placed.part, ToolResult):
                    if not open_calls[placed.part.id]:
                        self.lose("tool_result_without_call", placed)
                        continue
                    caller, _ = open_calls[placed.part.id].popleft()
                    results[caller].append(placed)
                    if caller != between:
                        self.lose("tool_result_moved", placed)
        left_out = set()
        for number, placed in sorted(call for calls in open_calls.values() for call in calls):
            self.lose("tool_call_without_result", placed)
            if number != len(turns) - 1:
                left_out.add(placed[:2])
        paired: list[Turn] = []
        for number, (role, parts) in enumerate(turns):
            if role != "tool":
                kept = [placed for placed in parts if placed[:2] not in left_out]
                paired += [Turn(role, kept)] if kept else []
                paired += [Turn("tool", results[number])] if results[number] else []
        return paired


def model_name(model: str, *prefixes: str) -> str:
    """Return the name by which a provider knows a model: without the prefix of the provider."""
    prefix, slash, name = model.partition("/")
    return name if slash and prefix in prefixes else model


def object_arguments(draft: Draft, placed: Placed) -> Block:
    """Return the arguments of a call as an object."""
    arguments = placed.part.arguments
    if isinstance(arguments, dict):
        return arguments
    draft.lose("arguments_wrapped", placed)
    return {"arguments": arguments}


def json_text(value: Any) -> str:
    """Return arguments or a result as text: JSON if it is not text, as in a record."""
    return value if isinstance(value, str) else _encode(value).decode()


def without_images(draft: Draft, placed: Placed) -> Any:
    """Return the result of a tool without images, which only some APIs take there."""
    response = placed.part.response
    if not isinstance(response, list):
        return response
    others = [block for block in response if not is_image_block(block)]
    if len(others) < len(response):
        draft.lose("image_role_unsupported", placed)
    return others


def is_blocks(response: Any, kinds: frozenset[str]) -> bool:
    """Return True if a result is a list of a provider's own blocks."""
    return (
        isinstance(response, list)
        and bool(response)
        and all(isinstance(block, dict) and block.get("type") in kinds for block in response)
    )


def sendable_image(
    draft: Draft, placed: Placed, *, types: frozenset[str], schemes: frozenset[str]
) -> Blob | Uri | None:
    """Return an image that a provider takes, or None; the type of a URL is read from its path."""
    image: Blob | Uri = placed.part
    if isinstance(image, Uri) and image.uri.startswith("data:"):
        image = blob_of(image.uri) or image
    if isinstance(image, Uri):
        address = _address(image.uri)
        if address is None or address.scheme not in schemes:
            draft.lose("image_url_unsupported", placed)
            return None
        if image.mime_type is None:
            image = Uri(uri=image.uri, mime_type=guess_type(address.path)[0])
    if image.mime_type == "image/jpg":
        image = replace(image, mime_type="image/jpeg")
    if image.mime_type is not None and image.mime_type not in types:
        draft.lose("image_type_unsupported", placed)
        return None
    return image


def _address(url: str) -> SplitResult | None:
    try:
        return urlsplit(url)
    except ValueError:
        return None


def blob_of(url: str) -> Blob | None:
    """Return the image in a `data:` URL, or None if it is not base64."""
    kind, _, data = url.removeprefix("data:").partition(",")
    try:
        if kind.endswith(";base64"):
            return Blob(mime_type=kind.partition(";")[0], content=b64decode(data, validate=True))
    except Base64Error:
        pass
    return None


def data_url(image: Blob | Uri) -> str:
    """Return the URL of an image; that of bytes contains them."""
    if isinstance(image, Uri):
        return image.uri
    return f"data:{image.mime_type};base64,{b64encode(image.content).decode()}"


def _role(part: Part | Tool, role: Role) -> Role:
    if isinstance(part, ToolCall | Reasoning):
        return "assistant"
    if isinstance(part, ToolResult):
        return "tool"
    return "user" if role == "tool" else role
