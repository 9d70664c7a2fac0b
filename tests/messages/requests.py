"""Requests for the tests of messages: shorthand, and random ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from headwater.messages.parts import (
    Blob,
    Message,
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
from tests.messages.sdk import MODELS

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
THOUGHTS: tuple[Any, ...] = (
    None,
    {"type": "thinking", "thinking": "The order is late.", "signature": "c2ln"},
    {"type": "redacted_thinking", "data": "aGlkZGVu"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "YWJj"},
    {"thought_signature": "c2ln"},
    {"thought": True, "text": "The order is late.", "thought_signature": "c2ln"},
)


def message(role: Role, *parts: Part | str) -> Message:
    return Message(
        role=role,
        parts=tuple(TextPart(content=part) if isinstance(part, str) else part for part in parts),
    )


def call(id: str = "call_1", name: str = "find_order", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def result(id: str = "call_1", response: Any = "shipped", **options: Any) -> ToolResult:
    return ToolResult(id=id, response=response, **options)


def request(*messages: Message, **options: Any) -> ModelRequest:
    return ModelRequest(messages=messages, **options)


_TEXTS = st.text(alphabet="ab \n", max_size=4)
_IDS = st.sampled_from(["c1", "c2", "c3"])
_VALUES = st.sampled_from([{}, {"order": 7}, [1, 2], "late", 3, None])
_CACHE = st.sampled_from([False, False, False, True])
_PARTS: st.SearchStrategy[Part] = st.one_of(
    st.builds(TextPart, content=_TEXTS, cache=_CACHE),
    st.builds(ToolCall, id=_IDS, name=st.just("find"), arguments=_VALUES, cache=_CACHE),
    st.builds(ToolResult, id=_IDS, response=_VALUES, cache=_CACHE, is_error=st.booleans()),
    st.builds(
        Blob,
        mime_type=st.sampled_from(["image/png", "image/gif", "image/tiff"]),
        content=st.just(PNG),
        cache=_CACHE,
    ),
    st.builds(
        Uri,
        uri=st.sampled_from(
            [
                "https://example.com/a.png",
                "https://example.com/image?id=7",
                "http://example.com/a.gif",
                "gs://bucket/a.png",
                "ftp://example.com/a.png",
                "data:image/png;base64,iVBORw0KGgo=",
                "data:image/png,raw",
            ]
        ),
        cache=_CACHE,
    ),
    st.builds(Reasoning, content=st.just("late"), block=st.sampled_from(THOUGHTS), cache=_CACHE),
)
_MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    parts=st.lists(_PARTS, max_size=4).map(tuple),
)
_TOOLS = st.builds(
    Tool,
    name=st.just("find"),
    description=st.sampled_from(["", "Finds an order."]),
    parameters=st.sampled_from([None, {"type": "object", "properties": {}}]),
    cache=_CACHE,
)
_ASKED, _SAID = message("user", "?"), message("assistant", "!")
_CALLED = message("assistant", "!", call("c1", order=1), call("c2", order=2))
_USUAL = st.sampled_from(
    [
        (message("system", "Be brief."),),
        (_ASKED, _SAID),
        (_ASKED, _CALLED, message("tool", result("c1"), result("c2"))),
        (_ASKED, _CALLED, message("tool", result("c2")), message("tool", result("c1")), _SAID),
    ]
)
"""Messages of which nothing is lost, except where a model wants signatures."""
REQUESTS = st.builds(
    ModelRequest,
    messages=st.one_of(
        st.lists(_MESSAGES, max_size=7).map(tuple),
        st.lists(_USUAL, max_size=4).map(lambda turns: sum(turns, ())),
    ),
    tools=st.lists(_TOOLS, max_size=2).map(tuple),
    model=st.sampled_from([None, "gpt-4o", "claude-sonnet-5", *MODELS.values()]),
    max_output=st.sampled_from([None, 500]),
    cache_key=st.sampled_from([None, "support"]),
)
