"""Messages of every provider become neutral ones, and back again."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from anthropic.types import Message as AnthropicMessage
from google.genai.types import Content, GenerateContentResponse
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion, ChatCompletionMessage
from openai.types.responses import Response

from headwater import ContextItem
from headwater.errors import InvalidInputError
from headwater.messages.parsing import messages_of
from headwater.messages.parts import (
    Blob,
    Message,
    ModelRequest,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.rendering import PROVIDERS, render
from headwater.messages.turns import Provider
from tests.messages.requests import PNG, REQUESTS, call, message, result

PNG_URL = "data:image/png;base64,iVBORw0KGgpwaXhlbHM="
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {
        "role": "user",
        "content": [
            {
                "type": "text",
                "text": "Where is it?",
                "prompt_cache_breakpoint": {"mode": "explicit"},
            },
            {"type": "image_url", "image_url": {"url": PNG_URL}},
            {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "find_order", "arguments": '{"order":7}'},
            },
            {
                "id": "call_2",
                "type": "function",
                "function": {"name": "find_order", "arguments": "{not json"},
            },
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
    {"role": "tool", "tool_call_id": "call_2", "content": "invalid arguments"},
    {"role": "assistant", "content": "It is on its way."},
]
RESPONSES: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Where is it?"},
            {"type": "input_image", "image_url": PNG_URL, "detail": "auto"},
        ],
    },
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "YWJj"},
    {"role": "assistant", "content": "Let me see."},
    {
        "type": "function_call",
        "call_id": "call_1",
        "name": "find_order",
        "arguments": '{"order":7}',
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "shipped"},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"role": "assistant", "content": "It is on its way."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Where is it?", "cache_control": {"type": "ephemeral"}},
            {
                "type": "image",
                "source": {
                    "type": "base64",
                    "media_type": "image/png",
                    "data": "iVBORw0KGgpwaXhlbHM=",
                },
            },
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "An order.", "signature": "c2ln"},
            {"type": "text", "text": "Let me see."},
            {"type": "tool_use", "id": "toolu_1", "name": "find_order", "input": {"order": 7}},
            {"type": "tool_use", "id": "toolu_2", "name": "find_order", "input": {}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": "shipped"},
            {
                "type": "tool_result",
                "tool_use_id": "toolu_2",
                "content": "which one?",
                "is_error": True,
                "cache_control": {"type": "ephemeral"},
            },
            {"type": "text", "text": "Hurry."},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []},
            {"type": "text", "text": "It is on its way."},
        ],
    },
]
GEMINI: list[dict[str, Any]] = [
    {
        "role": "user",
        "parts": [
            {"text": "Where is it?"},
            {"inline_data": {"mime_type": "image/png", "data": PNG}},
            {"file_data": {"mime_type": "image/png", "file_uri": "https://example.com/a.png"}},
        ],
    },
    {
        "role": "model",
        "parts": [
            {"text": "An order.", "thought": True},
            {
                "function_call": {"id": "a", "name": "find_order", "args": {"order": 7}},
                "thought_signature": b"sig",
            },
            {"function_call": {"id": "b", "name": "find_order", "args": {}}},
        ],
    },
    {
        "role": "user",
        "parts": [
            {
                "function_response": {
                    "id": "a",
                    "name": "find_order",
                    "response": {"state": "shipped"},
                }
            },
            {
                "function_response": {
                    "id": "b",
                    "name": "find_order",
                    "response": {"error": "which one?"},
                }
            },
        ],
    },
    {"role": "model", "parts": [{"text": "It is on its way.", "thought_signature": b"sig"}]},
]
SHAPES: list[tuple[Provider, str, str, list[dict[str, Any]]]] = [
    ("openai", "gpt-5.6", "messages", CHAT),
    ("openai_responses", "gpt-5.6", "input", RESPONSES),
    ("anthropic", "claude-opus-5", "messages", ANTHROPIC),
    ("gemini", "gemini-3.8-flash", "contents", GEMINI),
]


@pytest.mark.parametrize(("provider", "model", "field", "shape"), SHAPES)
def test_a_providers_messages_come_back_as_they_were(
    provider: Provider, model: str, field: str, shape: list[dict[str, Any]]
) -> None:
    tools = (Tool(name="find_order"),)
    request = ModelRequest(messages=messages_of(shape), tools=tools, model=model)
    rendered = render(request, provider)
    assert rendered.losses == ()
    assert rendered.body[field] == shape


def test_every_shape_has_the_same_neutral_messages() -> None:
    spoken = [
        [part for part in turn.parts if not isinstance(part, Reasoning)]
        for turn in messages_of(ANTHROPIC)
    ]
    assert spoken == [
        [
            TextPart(content="Where is it?", cache=True),
            Blob(mime_type="image/png", content=PNG),
            Uri(uri="https://example.com/a.png"),
        ],
        [
            TextPart(content="Let me see."),
            ToolCall(id="toolu_1", name="find_order", arguments={"order": 7}),
            ToolCall(id="toolu_2", name="find_order", arguments={}),
        ],
        [
            ToolResult(id="toolu_1", response="shipped"),
            ToolResult(id="toolu_2", response="which one?", is_error=True, cache=True),
        ],
        [TextPart(content="Hurry.")],
        [TextPart(content="It is on its way.")],
    ]
    assert [turn.role for turn in messages_of(ANTHROPIC)] == [
        *("user", "assistant", "tool", "user", "assistant"),
    ]
    assert [turn.role for turn in messages_of(RESPONSES)] == [
        *("user", "assistant", "tool", "assistant"),
    ]
    assert [turn.role for turn in messages_of(GEMINI)] == ["user", "assistant", "tool", "assistant"]


def test_gemini_speaks_in_json_names_too() -> None:
    parsed = messages_of(
        [
            {"role": "model", "parts": [{"functionCall": {"name": "find", "args": {"order": 7}}}]},
            {"parts": [{"functionResponse": {"name": "find", "response": {"output": "lost"}}}]},
            {"parts": [{"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgpwaXhlbHM="}}]},
        ]
    )
    made, answered, image = (turn.parts[0] for turn in parsed)
    assert isinstance(made, ToolCall)
    assert isinstance(answered, ToolResult)
    assert made.id == answered.id
    assert answered.response == "lost"
    assert image == Blob(mime_type="image/png", content=PNG)


def test_a_developers_message_is_of_the_system() -> None:
    (turn,) = messages_of([{"role": "developer", "content": "Be brief."}])
    assert turn == message("system", "Be brief.")


def test_one_message_needs_no_list() -> None:
    assert messages_of({"role": "user", "content": "Hi"}) == (message("user", "Hi"),)
    assert messages_of(message("user", "Hi")) == (message("user", "Hi"),)


@given(REQUESTS)
def test_neutral_messages_stay_what_they_are(request: ModelRequest) -> None:
    assert messages_of(request.messages) == request.messages


def test_neutral_dicts_are_read_with_their_cache_marks() -> None:
    parsed = messages_of(
        [
            {"role": "user", "parts": [{"type": "text", "content": "Hi", "cache": True}]},
            {
                "role": "assistant",
                "parts": [
                    {"type": "reasoning", "content": "A greeting."},
                    {"type": "tool_call", "id": "a", "name": "find", "arguments": {}},
                ],
                "finish_reason": "tool_call",
            },
            {"role": "tool", "parts": [{"type": "tool_call_response", "id": "a", "response": 1}]},
            {
                "role": "user",
                "parts": [
                    {"type": "blob", "mime_type": "image/png", "content": "iVBORw0KGgpwaXhlbHM="},
                    {"type": "uri", "uri": "https://example.com/a.png"},
                ],
            },
        ]
    )
    assert parsed == (
        message("user", TextPart(content="Hi", cache=True)),
        Message(
            role="assistant",
            parts=(Reasoning(content="A greeting."), call("a", "find")),
            finish_reason="tool_call",
        ),
        message("tool", result("a", 1)),
        message(
            "user",
            Blob(mime_type="image/png", content=PNG),
            Uri(uri="https://example.com/a.png"),
        ),
    )


def test_answers_of_the_clients_have_their_finish_reason() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    completion = ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "gpt-5.6",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "Hello"},
                }
            ],
            "usage": usage,
        }
    )
    answer = AnthropicMessage.model_validate(
        {
            "id": "m",
            "type": "message",
            "role": "assistant",
            "model": "claude-opus-5",
            "content": [{"type": "text", "text": "Hello"}],
            "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }
    )
    generated = GenerateContentResponse.model_validate(
        {
            "candidates": [
                {
                    "content": {"role": "model", "parts": [{"text": "Hello"}]},
                    "finish_reason": "MAX_TOKENS",
                }
            ]
        }
    )
    for raw, reason in ((completion, "stop"), (answer, "end_turn"), (generated, "max_tokens")):
        assert messages_of(raw) == (
            Message(role="assistant", parts=(TextPart(content="Hello"),), finish_reason=reason),
        )


def test_the_items_of_a_response_are_one_message() -> None:
    response = Response.model_construct(
        object="response",
        status="incomplete",
        incomplete_details={"reason": "max_output_tokens"},
        output=[
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm"}],
            },
            {
                "type": "message",
                "id": "m",
                "role": "assistant",
                "status": "completed",
                "content": [{"type": "output_text", "text": "Hello", "annotations": []}],
            },
            {"type": "function_call", "call_id": "a", "name": "find", "arguments": "{}"},
        ],
    )
    (answer,) = messages_of(response)
    assert answer.finish_reason == "max_output_tokens"
    thought, text, made = answer.parts
    assert isinstance(thought, Reasoning)
    assert thought.content == "Hm"
    assert (text, made) == (TextPart(content="Hello"), call("a", "find"))


def test_objects_of_the_clients_may_stand_among_dicts() -> None:
    said = ChatCompletionMessage.model_validate({"role": "assistant", "content": "Hello"})
    spoken = Content.model_validate({"role": "user", "parts": [{"text": "Bye"}]})
    assert messages_of([{"role": "user", "content": "Hi"}, said, spoken]) == (
        message("user", "Hi"),
        message("assistant", "Hello"),
        message("user", "Bye"),
    )


def test_a_refusal_and_the_reasoning_of_open_models_are_kept() -> None:
    refused, reasoned = messages_of(
        [
            {"role": "assistant", "content": None, "refusal": "I cannot help."},
            {"role": "assistant", "reasoning_content": "A greeting.", "content": "Hello"},
        ]
    )
    assert refused.text == "I cannot help."
    assert reasoned.parts == (Reasoning(content="A greeting."), TextPart(content="Hello"))


def test_the_result_of_a_tool_may_have_images() -> None:
    blocks = [
        {"type": "text", "text": "A map:"},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
    ]
    messages = [
        {"role": "user", "content": "Where?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": blocks}],
        },
    ]
    request = ModelRequest(messages=messages_of(messages))
    assert render(request, "anthropic").body["messages"] == messages


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ("Hi", "messages are a list of messages, not str"),
        (7, "messages are a list of messages, not int"),
        (["Hi"], r"messages\[0\] is a dict or an object of a provider's client, not str"),
        ([{"content": "Hi"}], r"messages\[0\] has no role"),
        ([{"role": "bot", "content": "Hi"}], r"messages\[0\].role is one of system, user.*'bot'"),
        ([{"role": "user", "content": 7}], r"messages\[0\].content is text or a list of blocks"),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            r"messages\[0\].content\[0\].text is missing",
        ),
        (
            [{"role": "user", "content": [{"type": "input_audio"}]}],
            r"messages\[0\].content\[0\] has a kind that is not supported: 'input_audio'",
        ),
        ([{"role": "tool", "content": "lost"}], r"messages\[0\].tool_call_id is missing"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"arguments": "{}"}}]}],
            r"messages\[0\].tool_calls\[0\].function.name is missing",
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
            r"image_url is the text of a URL; images by the id of a file are not supported",
        ),
        (
            [
                {
                    "role": "user",
                    "parts": [{"inlineData": {"mimeType": "image/png", "data": "?"}}],
                }
            ],
            r"messages\[0\].parts\[0\].inline_data.data is not base64",
        ),
        ([{"role": "user", "parts": [{}]}], r"messages\[0\].parts\[0\] has a kind that is not"),
        ([{"role": "user", "parts": "Hi"}], r"messages\[0\].parts is a list, not str"),
        (
            [{"role": "user", "parts": [{"type": "tool_call", "id": "a"}]}],
            r"messages\[0\].parts\[0\] .*missing.*`name`",
        ),
    ],
)
def test_what_is_not_a_message_is_refused_with_its_place(raw: object, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        messages_of(raw)


_FIELDS = st.sampled_from(
    [
        "role",
        "content",
        "parts",
        "type",
        "text",
        "tool_calls",
        "tool_call_id",
        "function",
        "id",
        "name",
        "arguments",
        "call_id",
        "output",
        "choices",
        "message",
        "finish_reason",
        "candidates",
        "functionCall",
        "function_response",
        "response",
        "inlineData",
        "mimeType",
        "data",
        "thought",
        "thoughtSignature",
        "source",
        "media_type",
        "url",
        "image_url",
        "summary",
        "status",
        "input",
        "incomplete_details",
        "tool_use_id",
        "stop_reason",
        "refusal",
        "reasoning",
        "args",
        "fileData",
        "fileUri",
        "uri",
    ]
)
_WORDS = st.sampled_from(
    [
        "user",
        "assistant",
        "model",
        "tool",
        "text",
        "tool_call",
        "tool_use",
        "tool_result",
        "image",
        "image_url",
        "input_image",
        "function_call",
        "function_call_output",
        "reasoning",
        "thinking",
        "blob",
        "uri",
        "message",
        "base64",
        "{}",
        "[",
        "http://[x",
    ]
)
_JSON = st.recursive(
    st.one_of(_WORDS, st.none(), st.booleans(), st.integers(-2, 2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_FIELDS, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.lists(st.dictionaries(_FIELDS, _JSON, max_size=5), max_size=3), _WORDS)
def test_any_json_is_read_and_rendered_or_refused(raw: list[dict[str, Any]], role: str) -> None:
    for fields in raw:
        fields.setdefault("role", role)
    with contextlib.suppress(InvalidInputError):
        request = ModelRequest(messages=messages_of(raw))
        for provider in PROVIDERS:
            render(request, provider)
        ContextItem.conversation(raw)


def test_a_providers_own_block_goes_back_without_nulls() -> None:
    item: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": [], "status": None}
    (thought,) = messages_of([item])[0].parts
    assert isinstance(thought, Reasoning)
    assert thought.block == {"type": "reasoning", "id": "rs_1", "summary": []}
