"""A conversation in one line: the newest messages stay, and what belongs together with them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from anthropic.types import ThinkingBlock
from hypothesis import given
from hypothesis import strategies as st

from headwater import ContextItem
from headwater.errors import InvalidInputError
from headwater.messages.parts import Blob, Reasoning, ToolCall, ToolResult
from tests.messages.requests import PNG, call, message, result

QUESTION, ANSWER = message("user", "Where is it?"), message("assistant", "On its way.")
THANKS, BYE = message("user", "Thanks."), message("assistant", "Bye.")


def units(messages: object, **options: Any) -> list[tuple[str | None, int, bool]]:
    """Return the group, the priority and the requirement of each item."""
    return [
        (item.group, item.priority, item.required)
        for item in ContextItem.conversation(messages, **options)
    ]


def test_a_question_and_its_answer_are_one_and_older_ones_fall_first() -> None:
    talk = [QUESTION, ANSWER, THANKS, BYE, QUESTION, ANSWER, message("user", "So?")]
    assert units(talk, keep_last=1, priority=5) == [
        ("conversation:0", 2, False),
        ("conversation:0", 2, False),
        ("conversation:2", 3, False),
        ("conversation:2", 3, False),
        ("conversation:4", 4, False),
        ("conversation:4", 4, False),
        ("conversation:6", 5, True),
    ]


def test_a_question_is_required_with_the_answer_that_is_kept() -> None:
    assert [required for _, _, required in units([QUESTION, ANSWER, THANKS, BYE], keep_last=3)] == [
        *(True, True, True, True)
    ]
    assert [required for _, _, required in units([QUESTION, ANSWER, THANKS, BYE], keep_last=2)] == [
        *(False, False, True, True)
    ]


def test_calls_are_given_up_before_the_question_that_they_serve() -> None:
    talk = [
        QUESTION,
        message("assistant", call("a")),
        message("tool", result("a")),
        message("assistant", "Next.", call("b")),
        message("tool", result("b")),
        ANSWER,
        THANKS,
    ]
    assert units(talk, keep_last=1) == [
        ("conversation:0", -1, False),
        ("conversation:1", -3, False),
        ("conversation:1", -3, False),
        ("conversation:3", -2, False),
        ("conversation:3", -2, False),
        ("conversation:3", -2, False),
        ("conversation:0", -1, False),
        ("conversation:6", 0, True),
    ]


def test_a_cut_between_a_call_and_its_result_requires_both_and_the_question() -> None:
    talk = [
        QUESTION,
        message("assistant", call("a")),
        message("tool", result("a")),
        message("assistant", Reasoning(content="Hm"), call("b"), call("c")),
        message("tool", result("b")),
        message("tool", result("c")),
    ]
    required = [item.required for item in ContextItem.conversation(talk, keep_last=1)]
    assert required == [True, False, False, True, True, True, True, True]


def test_reasoning_belongs_to_the_message_after_it() -> None:
    talk = [QUESTION, message("assistant", Reasoning(content="Hm")), ANSWER, THANKS]
    assert len({group for group, _, _ in units(talk, keep_last=1)}) == 2


def test_system_messages_are_required_at_their_place() -> None:
    talk = [
        {"role": "developer", "content": "Be brief."},
        QUESTION,
        {"role": "system", "content": "Now in French."},
        ANSWER,
        THANKS,
    ]
    items = ContextItem.conversation(talk, keep_last=1)
    assert [(item.role, item.required) for item in items] == [
        ("system", True),
        ("user", False),
        ("system", True),
        ("assistant", False),
        ("user", True),
    ]
    assert items[1].group == items[3].group != items[2].group


def test_every_message_has_its_own_turn_and_texts_of_one_are_one_item() -> None:
    talk = [
        message("user", "Hello, ", "world", Blob(mime_type="image/png", content=PNG), "?"),
        message("user", "So?"),
    ]
    items = ContextItem.conversation(talk, section="chat", source="crm")
    assert [(item.turn, item.part is None, item.group) for item in items] == [
        (0, True, "chat:0"),
        (0, False, "chat:0"),
        (0, True, "chat:0"),
        (1, True, "chat:0"),
    ]
    assert [item.content for item in items if item.part is None] == ["Hello, world", "?", "So?"]
    assert {(item.section, item.source) for item in items} == {("chat", "crm")}


def test_cache_marks_stay_on_their_items() -> None:
    marked = {"type": "ephemeral"}
    items = ContextItem.conversation(
        [
            {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": marked}]},
            {
                "role": "assistant",
                "content": [
                    {
                        "type": "tool_use",
                        "id": "a",
                        "name": "find",
                        "input": {},
                        "cache_control": marked,
                    }
                ],
            },
        ]
    )
    assert [item.cache for item in items] == [True, True]
    assert items[1].part == ToolCall(id="a", name="find", arguments={})


def test_calls_that_share_an_id_get_their_own() -> None:
    talk = [
        message("assistant", call("call_0", order=1)),
        message("tool", result("call_0", "one")),
        message("assistant", call("call_0", order=2)),
        message("tool", result("call_0", "two")),
    ]
    parts = [item.part for item in ContextItem.conversation(talk)]
    assert [part.id for part in parts if isinstance(part, ToolCall | ToolResult)] == [
        *("call_0", "call_0", "call_0-2", "call_0-2"),
    ]


@pytest.mark.parametrize(
    "talk",
    [
        [message("tool", result("a")), ANSWER],
        [message("tool", result("a")), message("assistant", call("a"))],
    ],
)
def test_a_result_without_a_call_before_it_is_refused_with_the_remedy(talk: object) -> None:
    with pytest.raises(InvalidInputError, match=r"'a' has no call before it.*was cut between them"):
        ContextItem.conversation(talk)


@pytest.mark.parametrize("keep_last", [-1, 1.5, True, None])
def test_keep_last_is_a_whole_number(keep_last: Any) -> None:
    with pytest.raises(InvalidInputError, match="keep_last is a whole number from 0"):
        ContextItem.conversation([QUESTION], keep_last=keep_last)


def test_an_empty_conversation_has_no_items() -> None:
    assert ContextItem.conversation([]) == []
    assert ContextItem.conversation([{"role": "assistant", "content": ""}]) == []


@given(
    st.lists(st.sampled_from(["ask", "say", "call", "think", "system"]), max_size=12),
    st.integers(0, 8),
)
def test_what_survives_the_oldest_being_dropped_is_a_valid_conversation(
    kinds: list[str], keep_last: int
) -> None:
    talk = []
    for number, kind in enumerate(kinds):
        id = f"c{number}"
        talk += {
            "ask": [message("user", "?")],
            "say": [message("assistant", "!")],
            "call": [message("assistant", call(id)), message("tool", result(id))],
            "think": [message("assistant", Reasoning(content="Hm"), "!")],
            "system": [message("system", "Be brief.")],
        }[kind]
    items = ContextItem.conversation(talk, keep_last=keep_last)
    spoken = [item for item in items if item.role != "system"]
    assert all(item.required for item in items if item.role == "system")
    last = [turn for turn, said in enumerate(talk) if said.role != "system"][-keep_last or 99 :]
    assert all(item.required for item in spoken if item.turn in last)
    asked = [turn for turn, said in enumerate(talk) if said.role == "user"]
    for lowest in range(-len(talk) - 1, 1):
        kept = [item for item in spoken if item.required or item.priority >= lowest]
        groups = {item.group for item in kept}
        assert kept == [item for item in spoken if item.group in groups]
        # After the first question, what is kept begins with a question.
        if kept and asked and (kept[0].turn or 0) >= asked[0]:
            assert kept[0].role == "user"


def test_what_is_sent_is_what_the_record_has() -> None:
    day = date(2026, 11, 17)
    made = ContextItem.tool_call("find", {"day": day, 7: b"id"}, id="a").part
    failed = ContextItem.tool_result("a", {"day": day}, is_error=True).part
    assert made == ToolCall(id="a", name="find", arguments={"day": "2026-11-17", "7": "aWQ="})
    assert failed == ToolResult(id="a", response={"day": "2026-11-17"}, is_error=True)


def test_reasoning_is_a_text_a_dict_or_an_object_of_a_client() -> None:
    block = {"type": "thinking", "thinking": "An order.", "signature": "c2ln"}
    thought = Reasoning(content="An order.", block=block)
    assert ContextItem.reasoning(block).part == thought
    assert ContextItem.reasoning(ThinkingBlock.model_validate(block)).part == thought
    signed = ContextItem.reasoning({"thought_signature": b"sig"}).part
    assert signed == Reasoning(content="", block={"thought_signature": "c2ln"})
    with pytest.raises(InvalidInputError, match="a block of reasoning is text or an object"):
        ContextItem.reasoning(7)  # type: ignore[arg-type]
