"""Every provider gets a body that its own client takes; what it cannot express has a name."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import msgspec
import pytest
from hypothesis import given

from headwater.messages.parts import (
    Blob,
    ModelRequest,
    Part,
    Reasoning,
    TextPart,
    Tool,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.messages.rendering import PROVIDERS, body, losses, providers_of, render
from headwater.messages.turns import LOSSES, Provider
from tests.docs.pages import ROOT
from tests.messages.requests import PNG, REQUESTS, THOUGHTS, call, message, request, result
from tests.messages.sdk import MODELS, check

TOOL = Tool(name="find_order", description="Finds an order.", parameters={"type": "object"})


def names(rendered_request: ModelRequest, provider: Provider) -> list[str]:
    return [loss.name for loss in losses(rendered_request, provider)]


def support(provider: Provider) -> ModelRequest:
    return request(
        message("system", "Be brief."),
        message("user", "Where is my order?", Blob(mime_type="image/png", content=PNG)),
        message("assistant", "Let me see.", call(order=7), call("call_2", order=8)),
        message("tool", result(response={"state": "shipped"}), result("call_2", "lost")),
        message("assistant", "One is shipped, one is lost."),
        message("user", "Thanks."),
        tools=(TOOL,),
        model=MODELS[provider],
        max_output=500,
        cache_key="support",
    )


def test_chat_completions_take_calls_as_json_text_and_results_as_messages() -> None:
    rendered = render(support("openai"), "openai")
    url = f"data:image/png;base64,{b64encode(PNG).decode()}"
    calls = [
        {
            "id": id,
            "type": "function",
            "function": {"name": "find_order", "arguments": f'{{"order":{order}}}'},
        }
        for id, order in (("call_1", 7), ("call_2", 8))
    ]
    function = {
        "name": "find_order",
        "description": "Finds an order.",
        "parameters": {"type": "object"},
    }
    assert rendered.losses == ()
    assert rendered.body == {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "Where is my order?"},
                    {"type": "image_url", "image_url": {"url": url}},
                ],
            },
            {"role": "assistant", "content": "Let me see.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "call_1", "content": '{"state":"shipped"}'},
            {"role": "tool", "tool_call_id": "call_2", "content": "lost"},
            {"role": "assistant", "content": "One is shipped, one is lost."},
            {"role": "user", "content": "Thanks."},
        ],
        "tools": [{"type": "function", "function": function}],
        "model": "gpt-5.6",
        "max_completion_tokens": 500,
        "prompt_cache_key": "support",
    }


def test_responses_take_instructions_and_items() -> None:
    rendered = render(support("openai_responses"), "openai_responses").body
    assert rendered["instructions"] == "Be brief."
    assert rendered["max_output_tokens"] == 500
    assert [item.get("type") or item["role"] for item in rendered["input"]] == [
        "user",
        "assistant",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "assistant",
        "user",
    ]
    assert rendered["tools"][0]["strict"] is False


def test_anthropic_takes_system_text_aside_and_results_in_the_next_user_message() -> None:
    rendered = render(support("anthropic"), "anthropic").body
    assert rendered["system"] == "Be brief."
    assert rendered["max_tokens"] == 500
    assert [turn["role"] for turn in rendered["messages"]] == [
        *("user", "assistant", "user", "assistant", "user"),
    ]
    assert rendered["messages"][1]["content"][1] == {
        "type": "tool_use",
        "id": "call_1",
        "name": "find_order",
        "input": {"order": 7},
    }
    assert rendered["messages"][2]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1", "content": '{"state":"shipped"}'},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "lost"},
    ]


def test_gemini_takes_the_name_of_the_function_with_its_response() -> None:
    rendered = render(support("gemini"), "gemini").body
    assert rendered["config"]["system_instruction"] == "Be brief."
    assert rendered["config"]["max_output_tokens"] == 500
    assert rendered["contents"][2] == {
        "role": "user",
        "parts": [
            {
                "function_response": {
                    "id": "call_1",
                    "name": "find_order",
                    "response": {"state": "shipped"},
                }
            },
            {
                "function_response": {
                    "id": "call_2",
                    "name": "find_order",
                    "response": {"output": "lost"},
                }
            },
        ],
    }
    assert rendered["contents"][0]["parts"][1]["inline_data"]["data"] == PNG


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_empty_message_is_left_out(provider: Provider) -> None:
    empty = request(message("user", "Hi"), message("assistant"), message("user", "", " \n"))
    only = request(message("user", "Hi"))
    assert render(empty, provider) == render(only, provider)


def test_text_parts_of_a_message_are_one_text() -> None:
    parts = request(message("user", "Hello, ", "world", "!"))
    assert render(parts, "openai").body["messages"] == [
        {"role": "user", "content": "Hello, world!"}
    ]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_result_follows_its_call_and_half_a_pair_is_left_out(provider: Provider) -> None:
    late = request(
        message("assistant", call("a")),
        message("user", "Hurry."),
        message("assistant", call("b"), call("c")),
        message("tool", result("a", "first"), result("d", "other")),
        message("tool", result("b", "second")),
        message("user", "So?"),
    )
    moved = request(
        message("assistant", call("a")),
        message("tool", result("a", "first")),
        message("user", "Hurry."),
        message("assistant", call("b")),
        message("tool", result("b", "second")),
        message("user", "So?"),
    )
    assert render(late, provider).body == render(moved, provider).body
    late = msgspec.structs.replace(late, tools=(Tool(name="find_order"),))
    assert {(loss.name, loss.message, loss.part) for loss in losses(late, provider)} == {
        ("tool_result_moved", 3, 0),
        ("tool_result_without_call", 3, 1),
        ("tool_call_without_result", 2, 1),
    }


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_last_call_stays_because_its_result_may_be_added(provider: Provider) -> None:
    open_call = request(message("user", "Where?"), message("assistant", call()))
    open_call = msgspec.structs.replace(open_call, tools=(Tool(name="find_order"),))
    rendered = render(open_call, provider)
    assert "find_order" in str(rendered.body)
    assert [loss.name for loss in rendered.losses] == ["tool_call_without_result"]


def test_anthropic_gets_tools_of_calls_whose_definition_was_dropped() -> None:
    called = request(
        message("user", "Where?"), message("assistant", call()), message("tool", result())
    )
    rendered = render(called, "anthropic")
    assert [tool["name"] for tool in rendered.body["tools"]] == ["find_order"]
    assert [loss.name for loss in rendered.losses] == ["tool_not_defined"]
    assert losses(called, "anthropic") == rendered.losses


@pytest.mark.parametrize("provider", ["openai", "openai_responses", "gemini"])
def test_an_image_in_a_result_is_not_sent_as_text(provider: Provider) -> None:
    blocks = [
        {"type": "text", "text": "A picture:"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}},
    ]
    seen = request(
        message("user", "Where?"),
        message("assistant", call()),
        message("tool", ToolResult(id="call_1", response=blocks)),
    )
    rendered = render(seen, provider)
    assert "QUJD" not in str(rendered.body)
    assert "image_role_unsupported" in [loss.name for loss in rendered.losses]


def test_calls_with_one_id_are_paired_in_order() -> None:
    twice = request(
        message("assistant", call("x", order=1)),
        message("tool", result("x", "one")),
        message("assistant", call("x", order=2)),
        message("tool", result("x", "two")),
        message("user", "Thanks."),
    )
    rendered = render(twice, "openai")
    assert rendered.losses == ()
    assert [turn.get("content") for turn in rendered.body["messages"]] == [
        *(None, "one", None, "two", "Thanks."),
    ]


def test_reasoning_goes_back_only_to_its_own_provider() -> None:
    owners = (None, "anthropic", "anthropic", "openai_responses", "gemini", "gemini")
    for block, owner in zip(THOUGHTS, owners, strict=True):
        thought = Reasoning(content="", block=block)
        thinking = request(message("user", "Hi"), message("assistant", thought, "Hello"))
        for provider in PROVIDERS:
            expected = [] if provider == owner else ["reasoning_dropped"]
            assert names(thinking, provider) == expected, (block, provider)


def test_anthropic_gets_its_thinking_back_unchanged_before_the_call() -> None:
    block = THOUGHTS[1]
    thinking = request(
        message("user", "Where?"),
        message("assistant", Reasoning(content="", block=block), call()),
        message("tool", result()),
    )
    content = render(thinking, "anthropic").body["messages"][1]["content"]
    assert content[0] == block
    assert content[1]["type"] == "tool_use"


def test_gemini_gets_the_signature_on_the_part_after_the_thought() -> None:
    signature = Reasoning(content="", block={"thought_signature": "c2ln"})
    signed = request(
        message("user", "Where?"),
        message("assistant", signature, call("a"), call("b")),
        message("tool", result("a"), result("b")),
        model="gemini-3.8-flash",
    )
    rendered = render(signed, "gemini")
    first, second = rendered.body["contents"][1]["parts"]
    assert first["thought_signature"] == b"sig"
    assert "thought_signature" not in second
    assert rendered.losses == ()


def test_gemini_3_gets_a_placeholder_for_the_signature_of_another_models_call() -> None:
    unsigned = request(
        message("user", "Where?"),
        message("assistant", call("a"), call("b")),
        message("tool", result("a"), result("b")),
        model="gemini-3.8-flash",
    )
    first, second = render(unsigned, "gemini").body["contents"][1]["parts"]
    assert first["thought_signature"] == b"skip_thought_signature_validator"
    assert "thought_signature" not in second
    assert names(unsigned, "gemini") == ["thought_signature_missing"]


def test_a_late_system_message_stays_where_the_model_takes_one() -> None:
    late = (message("user", "Hi"), message("system", "Answer in French."))
    new = render(request(*late, model="claude-opus-5"), "anthropic")
    assert new.losses == ()
    assert [turn["role"] for turn in new.body["messages"]] == ["user", "system"]
    old = render(request(*late, model="claude-sonnet-5"), "anthropic")
    assert old.body["system"] == "Answer in French."
    assert [loss[:1] + loss[2:] for loss in old.losses] == [("system_after_messages", 1, 0)]
    assert names(request(*late), "gemini") == ["system_after_messages"]
    assert names(request(*late), "openai") == names(request(*late), "openai_responses") == []


def test_a_system_message_before_one_of_the_user_is_moved_also_for_new_models() -> None:
    late = request(
        message("user", "Hi"),
        message("system", "Answer in French."),
        message("user", "Where?"),
        model="claude-opus-5",
    )
    rendered = render(late, "anthropic").body
    assert rendered["system"] == "Answer in French."
    assert [turn["role"] for turn in rendered["messages"]] == ["user"]


def marked(count: int, **options: Any) -> ModelRequest:
    parts = [TextPart(content=str(number), cache=True) for number in range(count)]
    return request(message("user", *parts), **options)


def test_the_last_cache_marks_are_kept_as_many_as_a_provider_takes() -> None:
    six = marked(6)
    content = render(six, "anthropic").body["messages"][0]["content"]
    assert ["cache_control" in block for block in content] == [False] * 2 + [True] * 4
    assert [(loss.name, loss.part) for loss in losses(six, "anthropic")] == [
        ("too_many_cache_marks", 0),
        ("too_many_cache_marks", 1),
    ]
    content = render(marked(6, model="gpt-5.6"), "openai").body["messages"][0]["content"]
    assert ["prompt_cache_breakpoint" in block for block in content] == [False] * 3 + [True] * 3


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-5.5", "gpt-5", "o3", None])
def test_models_without_cache_marks_get_none(model: str | None) -> None:
    assert names(marked(1, model=model), "openai") == ["cache_mark_unsupported"]
    assert names(marked(1, model=model), "openai_responses") == ["cache_mark_unsupported"]


@pytest.mark.parametrize("model", ["gpt-5.6", "openai/gpt-6-mini", "gpt-5.10", "ft:gpt-6:acme::1"])
def test_new_models_of_openai_take_cache_marks(model: str) -> None:
    assert names(marked(1, model=model), "openai") == []


@pytest.mark.parametrize(
    ("image", "lost"),
    [
        (Uri(uri="https://example.com/a.png"), {}),
        (Uri(uri="https://example.com/a.gif"), {"gemini": "image_type_unsupported"}),
        (Uri(uri="https://example.com/a"), {"gemini": "image_type_unsupported"}),
        (Uri(uri="https://example.com/a", mime_type="image/png"), {}),
        (Uri(uri="data:image/png;base64,iVBORw0KGgo="), {}),
        (Blob(mime_type="image/jpg", content=b"\xff\xd8\xff"), {}),
        (
            Uri(uri="http://example.com/a.png"),
            dict.fromkeys(("anthropic", "gemini"), "image_url_unsupported"),
        ),
        (
            Uri(uri="https://[example"),
            dict.fromkeys(PROVIDERS, "image_url_unsupported"),
        ),
        (
            Uri(uri="gs://bucket/a.png"),
            dict.fromkeys(("openai", "openai_responses", "anthropic"), "image_url_unsupported"),
        ),
        (
            Blob(mime_type="image/tiff", content=b"II"),
            dict.fromkeys(PROVIDERS, "image_type_unsupported"),
        ),
    ],
)
def test_an_image_that_a_provider_cannot_read_is_named(
    image: Blob | Uri, lost: dict[Provider, str]
) -> None:
    for provider in PROVIDERS:
        expected = [lost[provider]] if provider in lost else []
        assert names(request(message("user", image)), provider) == expected, provider


def test_a_failed_tool_is_marked_where_the_provider_can() -> None:
    failed = request(
        message("user", "Where?"),
        message("assistant", call()),
        message("tool", result(response="no such order", is_error=True)),
    )
    anthropic = render(failed, "anthropic").body["messages"][2]["content"][0]
    assert anthropic["is_error"] is True
    gemini = render(failed, "gemini").body["contents"][2]["parts"][0]["function_response"]
    assert gemini["response"] == {"error": "no such order"}
    assert names(failed, "openai") == ["tool_error_unmarked"]


@pytest.mark.parametrize(
    ("model", "sent", "provider"),
    [
        ("openai/gpt-5.6", "gpt-5.6", "openai"),
        ("openai/gpt-oss-120b", "openai/gpt-oss-120b", "openai"),
        ("meta-llama/Llama-4-Scout", "meta-llama/Llama-4-Scout", "openai"),
        ("ft:gpt-4o:acme::7", "ft:gpt-4o:acme::7", "openai_responses"),
        ("anthropic/claude-opus-5", "claude-opus-5", "anthropic"),
        ("google/gemini-3.8-flash", "gemini-3.8-flash", "gemini"),
        ("projects/p/models/gemini-4", "projects/p/models/gemini-4", "gemini"),
    ],
)
def test_a_model_has_the_name_that_its_provider_knows(
    model: str, sent: str, provider: Provider
) -> None:
    assert render(request(message("user", "Hi"), model=model), provider).body["model"] == sent


def test_anthropic_gets_a_limit_of_the_answer_because_it_needs_one() -> None:
    assert render(request(message("user", "Hi")), "anthropic").body["max_tokens"] == 4_096


@pytest.mark.parametrize(
    ("model", "providers"),
    [
        ("gpt-5.6", ("openai", "openai_responses")),
        ("ft:gpt-4o:acme::7", ("openai", "openai_responses")),
        ("anthropic/claude-opus-5", ("anthropic",)),
        ("gemini-3.8-flash", ("gemini",)),
        ("mistral-large", PROVIDERS),
        (None, PROVIDERS),
    ],
)
def test_the_losses_of_a_request_are_those_of_the_providers_of_its_model(
    model: str | None, providers: tuple[Provider, ...]
) -> None:
    assert providers_of(model) == providers
    lossy = request(message("user", "Hi"), message("assistant", Reasoning(content="Hm")))
    found = losses(ModelRequest(messages=lossy.messages, model=model))
    assert [loss.provider for loss in found] == list(providers)


def test_a_body_with_losses_is_returned_and_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    lossy = request(
        message("assistant", Reasoning(content="Hm"), Reasoning(content="So"), "Hello"),
    )
    sent = body(lossy, "openai", context="support")
    assert sent["messages"] == [{"role": "assistant", "content": "Hello"}]
    (line,) = capsys.readouterr().err.splitlines()
    record = msgspec.json.decode(line)
    assert record["event"] == "request not fully expressed"
    assert record["losses"] == "reasoning_dropped"


@given(REQUESTS)
def test_every_client_takes_every_body(any_request: ModelRequest) -> None:
    for provider in PROVIDERS:
        rendered = render(any_request, provider)
        check(provider, rendered.body)
        assert losses(any_request, provider) == rendered.losses
        assert all(loss.name in LOSSES for loss in rendered.losses)
    everywhere = [render(any_request, name).losses for name in providers_of(any_request.model)]
    assert losses(any_request) == tuple(loss for found in everywhere for loss in found)


LEFT_OUT = {
    "image_role_unsupported",
    "image_type_unsupported",
    "image_url_unsupported",
    "reasoning_dropped",
    "tool_result_without_call",
    "tool_call_without_result",
}
"""The losses of parts that are not in the body, except for a call that comes last."""


@given(REQUESTS)
def test_every_part_is_in_the_body_or_among_the_losses(any_request: ModelRequest) -> None:
    tagged = ModelRequest(
        messages=tuple(
            msgspec.structs.replace(
                turn,
                parts=tuple(tag(part, f"[{place}.{n}]") for n, part in enumerate(turn.parts)),
            )
            for place, turn in enumerate(any_request.messages)
        ),
        tools=any_request.tools,
        model=any_request.model,
    )
    for provider in PROVIDERS:
        rendered = render(tagged, provider)
        sent = str(rendered.body)
        lost = {(loss.message, loss.part): loss.name for loss in rendered.losses}
        for place, turn in enumerate(tagged.messages):
            for number in range(len(turn.parts)):
                text = f"[{place}.{number}]"
                is_sent = text in sent or base64(text) in sent
                names = {loss.name for loss in rendered.losses if loss[2:] == (place, number)}
                assert is_sent or names & LEFT_OUT, (provider, text, lost)
                assert not is_sent or names & LEFT_OUT <= {"tool_call_without_result"}


def tag(part: Part, text: str) -> Part:
    """Return a part of the same kind that is recognised in a body."""
    match part:
        case TextPart():
            return msgspec.structs.replace(part, content=f"{part.content}{text}")
        case ToolCall():
            return msgspec.structs.replace(part, arguments={"tag": text})
        case ToolResult():
            return msgspec.structs.replace(part, response=text)
        case Blob():
            return msgspec.structs.replace(part, content=text.encode())
        case Uri() if part.uri.startswith("data:image/png;base64,"):
            return Uri(uri=f"data:image/png;base64,{base64(text)}")
        case Uri():
            return msgspec.structs.replace(part, uri=f"{part.uri}#{text}")
        case Reasoning(block={"thought_signature": _} as block):
            return Reasoning(content="", block=block | {"thought_signature": base64(text)})
        case Reasoning(block={} as block):
            return Reasoning(content="", block=block | {"tag": text})
    return part


def base64(text: str) -> str:
    return b64encode(text.encode()).decode()


def test_the_how_to_explains_every_loss() -> None:
    page = (ROOT / "docs/how-to/messages.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^\| `([a-z_]+)` \|", page) == sorted(LOSSES)
