"""The neutral shape of messages: that of OpenTelemetry's GenAI conventions.

A message has a role and parts. Text parts of one message are concatenated as they are: where a
separator belongs between two of them, the first one ends with it.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Grade = Literal["exact", "provider", "estimate"]
"""How tokens were counted: by the model's own tokenizer, by the provider, or by an estimate."""


class TextPart(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="text"
):
    """Text; with ``cache``, a provider may cache everything up to its end."""

    content: str
    cache: bool = False


class ToolCall(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="tool_call"
):
    """A call of a tool by the model."""

    id: str
    name: str
    arguments: Any
    cache: bool = False


class ToolResult(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    omit_defaults=True,
    tag_field="type",
    tag="tool_call_response",
):
    """What a tool returned for the call with this id: text, or any JSON value."""

    id: str
    response: Any
    cache: bool = False
    is_error: bool = False
    """True if the tool failed and the response says why."""


class Blob(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="blob"
):
    """An image as bytes, which are base64 in JSON."""

    modality: Literal["image"] = "image"
    mime_type: str
    content: bytes
    cache: bool = False

    def __repr__(self) -> str:
        return f"Blob({self.mime_type!r}, {len(self.content)} bytes)"


class Uri(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="uri"
):
    """An image by its address."""

    modality: Literal["image"] = "image"
    mime_type: str | None = None
    uri: str
    cache: bool = False


class Reasoning(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="reasoning"
):
    """What the model thought; ``block`` is the provider's own object, to be sent back unchanged.

    So is anything else in an answer that only its provider understands, such as a search.
    """

    content: str
    block: Any = None
    cache: bool = False


Part = TextPart | ToolCall | ToolResult | Blob | Uri | Reasoning


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message; ``finish_reason`` is that of an answer of a model."""

    role: Role
    parts: tuple[Part, ...]
    finish_reason: str | None = None

    @property
    def text(self) -> str:
        """All text of the message."""
        return "".join(part.content for part in self.parts if isinstance(part, TextPart))


class Tool(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="function"
):
    """The definition of a tool; ``parameters`` is a JSON schema."""

    name: str
    description: str = ""
    parameters: Any = None
    cache: bool = False


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model is sent: messages, tools, and the tokens that are reserved for its answer.

    ``cache_key`` is the same for requests that begin alike.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    model: str | None = None
    max_output: int | None = None
    cache_key: str | None = None
