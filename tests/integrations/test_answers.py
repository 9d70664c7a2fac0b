"""Answers in the wire formats of the providers are read as neutral messages and usage."""

from __future__ import annotations

from typing import Any

import pytest

from headwater import Message, Reasoning, TextPart, ToolCall, Usage
from headwater.integrations.answers import CHAT, MESSAGES, RESPONSES, ended, response_of


def chunk(*choices: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "chatcmpl-7", "model": "gpt-5.2-2026-08-01", "choices": list(choices), **fields}


def delta(index: int = 0, end: str | None = None, **pieces: Any) -> dict[str, Any]:
    return {"index": index, "delta": pieces, "finish_reason": end}


def call_piece(index: int, **pieces: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": index, **pieces}])


def test_parallel_tool_calls_of_a_chat_stream_are_put_together() -> None:
    events = [
        chunk(delta(role="assistant", content=None)),
        chunk(call_piece(0, id="c1", type="function", function={"name": "track", "arguments": ""})),
        chunk(call_piece(0, function={"arguments": '{"parcel":'})),
        chunk(call_piece(1, id="c2", type="function", function={"name": "hour", "arguments": "{"})),
        chunk(call_piece(0, function={"arguments": ' "P-1"}'})),
        chunk(call_piece(1, function={"arguments": "}"})),
        chunk(delta(end="tool_calls")),
    ]
    assert response_of(CHAT, CHAT.folded(events)).messages == (
        Message(
            role="assistant",
            parts=(
                ToolCall(id="c1", name="track", arguments={"parcel": "P-1"}),
                ToolCall(id="c2", name="hour", arguments={}),
            ),
            finish_reason="tool_calls",
        ),
    )


def test_each_choice_of_a_chat_stream_is_a_message() -> None:
    events = [
        chunk(delta(0, content="Two "), delta(1, content="A ")),
        chunk(delta(1, content="week.")),
        chunk(delta(0, "stop", content="days."), delta(1, "length")),
        chunk(usage={"prompt_tokens": 12, "completion_tokens": 6, "total_tokens": 18}),
    ]
    response = response_of(CHAT, CHAT.folded(events))
    assert [message.text for message in response.messages] == ["Two days.", "A week."]
    assert response.finish_reasons == ("stop", "length")
    assert response.usage is not None
    assert response.usage.input == 12


def test_what_a_model_thought_and_a_refusal_are_parts_of_the_message() -> None:
    message = {"role": "assistant", "reasoning_content": "Hm.", "refusal": "No.", "content": None}
    answer = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    (read,) = response_of(CHAT, answer).messages
    assert read.parts == (Reasoning(content="Hm."), TextPart(content="No."))


CHAT_USAGE = {
    "prompt_tokens": 2_000,
    "completion_tokens": 300,
    "total_tokens": 2_300,
    "prompt_tokens_details": {"cached_tokens": 1_536, "cache_write_tokens": 128},
    "completion_tokens_details": {"reasoning_tokens": 250},
}
RESPONSES_USAGE = {
    "input_tokens": 2_000,
    "input_tokens_details": {"cached_tokens": 1_536, "cache_write_tokens": 128},
    "output_tokens": 300,
    "output_tokens_details": {"reasoning_tokens": 250},
    "total_tokens": 2_300,
}
MESSAGES_USAGE = {
    "input_tokens": 336,
    "cache_read_input_tokens": 1_536,
    "cache_creation_input_tokens": 128,
    "output_tokens": 300,
    "output_tokens_details": {"thinking_tokens": 250},
}


@pytest.mark.parametrize(
    ("api", "raw"),
    [(CHAT, CHAT_USAGE), (RESPONSES, RESPONSES_USAGE), (MESSAGES, MESSAGES_USAGE)],
    ids=["chat", "responses", "messages"],
)
def test_usage_is_the_same_for_all_providers_and_input_includes_cached_tokens(
    api: Any, raw: dict[str, Any]
) -> None:
    assert response_of(api, {"usage": raw}).usage == Usage(
        input=2_000, output=300, cache_read=1_536, cache_write=128, reasoning=250, raw=raw
    )


def test_a_response_stream_that_ends_early_has_the_items_that_came() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"text": "Look."}]}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}},
        {"type": "response.output_item.done", "output_index": 0, "item": thought},
        {
            "type": "response.output_item.added",
            "output_index": 1,
            "item": {"type": "function_call", "call_id": "c1", "name": "track", "arguments": ""},
        },
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"par'},
    ]
    response = ended(response_of(RESPONSES, RESPONSES.folded(events)), "cancelled")
    (message,) = response.messages
    assert message.parts == (
        Reasoning(content="Look.", block=thought),
        ToolCall(id="c1", name="track", arguments='{"par'),
    )
    assert response.finish_reasons == ("cancelled",)
    assert message.finish_reason == "cancelled"


def test_a_response_that_was_cut_has_the_reason_of_the_provider() -> None:
    item = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "Two"}],
    }
    answer: dict[str, Any] = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [item, {"type": "web_search_call", "id": "ws_1", "status": "completed"}],
    }
    response = response_of(RESPONSES, answer)
    assert response.finish_reasons == ("max_output_tokens",)
    (message,) = response.messages
    assert message.text == "Two"
    assert message.parts[1] == Reasoning(content="", block=answer["output"][1])


def test_thinking_of_a_message_stream_keeps_its_signature() -> None:
    def block(index: int, **pieces: Any) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": index, "delta": pieces}

    events: list[dict[str, Any]] = [
        {
            "type": "message_start",
            "message": {"id": "msg_1", "role": "assistant", "usage": {"input_tokens": 9}},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "thinking", "thinking": "", "signature": ""},
        },
        block(0, type="thinking_delta", thinking="Let me "),
        block(0, type="thinking_delta", thinking="look."),
        block(0, type="signature_delta", signature="EqQB"),
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        block(1, type="text_delta", text="Two days."),
        block(1, type="citations_delta", citation={"cited_text": "two days"}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 15, "input_tokens": None},
        },
        {"type": "message_stop"},
    ]
    response = response_of(MESSAGES, MESSAGES.folded(events))
    (message,) = response.messages
    thought = {"type": "thinking", "thinking": "Let me look.", "signature": "EqQB"}
    assert message.parts == (
        Reasoning(content="Let me look.", block=thought),
        TextPart(content="Two days."),
    )
    assert response.usage is not None
    assert (response.usage.input, response.usage.output) == (9, 15)
    assert response.finish_reasons == ("end_turn",)


def test_an_answer_of_an_unknown_kind_is_kept_as_it_came() -> None:
    half = {"id": "msg_1", "role": "assistant", "content": [{"type": "tool_use", "name": ""}]}
    (message,) = response_of(MESSAGES, half).messages
    assert message.parts == (Reasoning(content="", block=half),)
