"""Items as the messages and tools of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from headwater.messages.parts import Message, Part, TextPart, Tool
from headwater.messages.texts import Layout


class Composed(NamedTuple):
    """Messages and tools, and the item that each of their parts began with.

    A part is named by the number of its message and its own; the number of a tool's message is
    None.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    items: dict[tuple[int | None, int], int]


def compose(layout: Layout, parts: Sequence[Part | Tool | None], separator: str) -> Composed:
    """Return the request of items; the part of a dropped item is None.

    Texts that follow each other in a message are one part, unless a cache mark ends the first.
    """
    messages: dict[int, list[Part]] = {}
    roles = dict(zip(layout.numbers, layout.roles, strict=True))
    tools: list[Tool] = []
    items: dict[tuple[int | None, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for item, (number, part) in enumerate(zip(layout.numbers, parts, strict=True)):
        if part is None or (isinstance(part, TextPart) and not part.content):
            continue
        if isinstance(part, Tool):
            items[None, len(tools)] = item
            tools.append(part)
            continue
        message = messages.setdefault(number, [])
        if not _joined(message, part, separator):
            first[number, len(message)] = item
            message.append(part)
    numbers = {number: place for place, number in enumerate(messages)}
    items |= {(numbers[number], part): item for (number, part), item in first.items()}
    return Composed(
        tuple(
            Message(role=role, parts=tuple(message))
            for number, message in messages.items()
            if (role := roles[number]) is not None
        ),
        tuple(tools),
        items,
    )


def _joined(message: list[Part], part: Part, separator: str) -> bool:
    """Join a text to the one before it; return False if it is a part of its own."""
    before = message[-1] if message else None
    if not isinstance(part, TextPart) or not isinstance(before, TextPart):
        return False
    if before.cache:
        message[-1] = replace(before, content=before.content + separator)
        return False
    message[-1] = replace(part, content=before.content + separator + part.content)
    return True
