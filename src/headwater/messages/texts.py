"""Parts as text: the content of an item in a record, and the transcript of all kept items."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from headwater.messages.parts import Blob, Part, Role, TextPart, Tool

_encode = msgspec.json.Encoder(order="sorted").encode
_plain = msgspec.json.Encoder().encode
_decode_part: Callable[[str], Part] = msgspec.json.Decoder(Part).decode
_decode_tool = msgspec.json.Decoder(Tool).decode
BETWEEN = "\n\n"
"""Stands between two messages of a transcript."""
TOOLS = "tools"
"""The heading of the tools in a transcript."""


def part_text(part: Part | Tool) -> str:
    """Return the content that an item of this part has in a record.

    That is its JSON; the bytes of an image are recorded beside it, and here are only their hash.
    """
    if isinstance(part, TextPart):
        return part.content
    if not isinstance(part, Blob):
        return _encode(part).decode()
    digest = f"sha256:{sha256(part.content).hexdigest()}"
    fields = {"type": "blob", "modality": part.modality, "mime_type": part.mime_type}
    return _encode(fields | {"digest": digest, "size": len(part.content)}).decode()


def json_text(value: object) -> str:
    """Return a JSON value without spaces, its keys in the order that they have."""
    return _plain(value).decode()


def part_of(kind: str, content: str, data: bytes | None) -> Part | Tool:
    """Return the part whose content and bytes an item of a record has; raise if it is invalid."""
    if kind == "text":
        return TextPart(content=content)
    if kind == "tool":
        return _decode_tool(content)
    if data is not None:
        fields: dict[str, Any] = msgspec.json.decode(content)
        return Blob(mime_type=fields["mime_type"], content=data)
    return _decode_part(content)


def is_image_block(block: object) -> bool:
    """Return True if a block of a tool's result, in a provider's own shape, is an image."""
    return isinstance(block, dict) and block.get("type") in ("image", "image_url", "input_image")


class Place(NamedTuple):
    """Where an item stands: the role is None for a tool; `turn` divides items of one role."""

    role: Role | None
    turn: int | None


class Layout(NamedTuple):
    """Which item belongs to which message: the role of each item, and the number of its message.

    Neighbours with the same place belong to one message; tools between them do not divide it. The
    number of a tool is -1.
    """

    roles: Sequence[Role | None]
    numbers: Sequence[int]


def layout(places: Iterable[Place]) -> Layout:
    """Return the messages of items."""
    roles: list[Role | None] = []
    numbers: list[int] = []
    before, number = None, -1
    for place in places:
        roles.append(place.role)
        if place.role is None:
            numbers.append(-1)
            continue
        if place != before:
            before, number = place, number + 1
        numbers.append(number)
    return Layout(roles, numbers)


def transcript(layout: Layout, texts: Sequence[str | None], separator: str) -> str:
    """Return the readable text of messages; the text of an item that was dropped is None.

    Tools come first. Each message begins with its role; empty texts add nothing.
    """
    blocks: dict[int, list[str]] = {}
    for number, role, text in zip(layout.numbers, layout.roles, texts, strict=True):
        if text:
            block = blocks.get(number)
            if block is None:
                blocks[number] = [f"{role or TOOLS}:\n{text}"]
            else:
                block.append(text)
    return BETWEEN.join([separator.join(blocks[number]) for number in sorted(blocks)])
