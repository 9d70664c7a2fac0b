"""The features of the shop, and contexts that are messages."""

from __future__ import annotations

import struct
import zlib

from headwater import ContextItem, context
from tests.ui.features import search_help, store

ORDER = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["order_id"],
}
REASONING = "The customer asks about A-17.\nI look it up first, and then in the help pages."
RECEIPT = "https://cdn.example.com/receipts/2026/a-17.jpg"


def png(width: int, height: int) -> bytes:
    """Return a picture of some colours."""
    rows = b"".join(
        b"\0" + bytes(value for x in range(width) for value in (x * 5 % 256, y * 7 % 256, 160))
        for y in range(height)
    )

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@context(store, max_tokens=430, max_output=512, model="gpt-4o")
async def chat(user_id: str, question: str) -> list[ContextItem]:
    """A conversation with tools, images and reasoning; its first turns do not fit."""
    return [
        ContextItem(
            "You are the support agent of a small shop. Be brief.",
            required=True,
            role="system",
            cache=True,
        ),
        ContextItem.template("Customer: {blurb}.", priority=80, role="system"),
        ContextItem.tool(
            "find_order", ORDER, "Return an order of the customer by its id.", priority=90
        ),
        ContextItem.tool("refund", ORDER, "Refund an order. " * 30, priority=5),
        ContextItem("I ordered a lamp. " * 40, role="user", turn=1, group="greeting", priority=10),
        ContextItem(
            "What about it? " * 40, role="assistant", turn=2, group="greeting", priority=10
        ),
        ContextItem(
            "Where is my order A-17? This is the receipt.", role="user", turn=3, priority=60
        ),
        ContextItem.image(png(160, 90), tokens=85, turn=3, priority=60),
        ContextItem.image(RECEIPT, tokens=85, turn=3, priority=60),
        ContextItem.reasoning(REASONING, turn=4, priority=70, group="A-17"),
        ContextItem.tool_call(
            "find_order", {"order_id": "A-17"}, id="call_9f3", turn=4, priority=70, group="A-17"
        ),
        ContextItem.tool_result(
            "call_9f3",
            {"order_id": "A-17", "status": "shipped", "lines": [{"sku": "lamp"}]},
            turn=5,
            priority=70,
            group="A-17",
            cache=True,
        ),
        *(
            ContextItem(chunk.text, priority=50 - rank, source=chunk, role="user")
            for rank, chunk in enumerate(await search_help(question))
        ),
        ContextItem(question, required=True, role="user"),
    ]


@context(store, max_tokens=100_000)
async def hostile_chat(text: str) -> list[ContextItem]:
    """Messages with a hostile text in every part."""
    return [
        ContextItem(text, role="system", section=text[:60]),
        ContextItem.tool(text[:60], {"properties": {text: {"type": text}}}, text),
        ContextItem.reasoning(text),
        ContextItem.tool_call(text, {text: text}, id=text),
        ContextItem.tool_result(text, {text: [text]}),
        ContextItem.image(f"https://example.com/{text}"),
        ContextItem(text, role="user"),
    ]
