"""Contexts of messages: assembled, recorded, verified, replayed and explained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headwater import Context, ContextItem, FeatureStore, TokenBudgetError, context
from headwater.declarations.contexts import ContextFunction
from headwater.errors import ContextFailedError, InvalidInputError
from headwater.messages.counting import counter_for
from headwater.messages.parts import Blob, Message, Reasoning, TextPart, Tool, ToolCall, ToolResult
from headwater.settings.schema import Settings
from tests.contexts.support import recorded

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (64).to_bytes(4) + (64).to_bytes(4) + b"\x08\x06\0\0\0"
Item: Any = ContextItem
"""For arguments that the types refuse."""
SCHEMA = {"type": "object", "properties": {"parcel": {"type": "string"}}}


def desk(store: FeatureStore, items: Sequence[ContextItem], **options: Any) -> ContextFunction[Any]:
    """Declare a context that returns these items."""

    @context(store, **{"model": "gpt-4o"} | options)
    async def support(question: str = "Where is it?") -> list[ContextItem]:
        return [*items, ContextItem(question, role="user", required=True)]

    return support


def conversation() -> list[ContextItem]:
    return [
        ContextItem("You help customers.", role="system", required=True, cache=True),
        ContextItem("Answer briefly.", role="system", priority=9),
        ContextItem.tool("track", SCHEMA, "Where a parcel is", priority=8),
        ContextItem("Hello", role="user", turn=0, priority=1),
        ContextItem("How can I help?", role="assistant", turn=1, priority=2),
        ContextItem.tool_call("track", {"parcel": "p-7"}, id="c-1", priority=6),
        ContextItem.tool_result("c-1", {"state": "lost"}),
        ContextItem.image(PNG, priority=5),
    ]


def kinds(made: Context) -> list[tuple[str, list[type]]]:
    return [(message.role, list(map(type, message.parts))) for message in made.messages]


@pytest.mark.both_environments
async def test_items_with_roles_become_messages_that_are_recorded_and_verified(
    store: FeatureStore,
) -> None:
    made = await desk(store, conversation(), max_output=500)()
    assert kinds(made) == [
        ("system", [TextPart, TextPart]),
        ("user", [TextPart]),
        ("assistant", [TextPart]),
        ("assistant", [ToolCall]),
        ("tool", [ToolResult]),
        ("user", [Blob, TextPart]),
    ]
    first = made.messages[0].parts[0]
    assert first == TextPart(content="You help customers.\n\n", cache=True)
    assert made.messages[0].text == "You help customers.\n\nAnswer briefly."
    assert made.request is not None
    assert [tool.name for tool in made.request.tools] == ["track"]
    assert made.request.max_output == 500
    past = await store.get_context_at(made.context_id)
    assert past.request == made.request
    report = await store.records.verify(made.context_id, expect=made.record_hash)
    assert [check.ok for check in report.checks if check.check != "signature"] == [True] * 4
    for mode in ("show", "reassemble", "live"):
        assert (await store.replay(made.context_id, mode)).matches, mode


async def test_the_text_of_messages_is_a_transcript(store: FeatureStore) -> None:
    items = [
        ContextItem("Be kind.", role="system"),
        ContextItem.tool("track", {}, "Where"),
        ContextItem("", role="user", turn=1),
        ContextItem("Facts.", role="system"),
        ContextItem("Plain."),
    ]
    made = await desk(store, items)()
    tool = '{"description":"Where","name":"track","parameters":{},"type":"function"}'
    assert made.content == (
        f"tools:\n{tool}\n\nsystem:\nBe kind.\n\nsystem:\nFacts.\n\nuser:\nPlain.\n\nWhere is it?"
    )
    assert str(made) == made.content


async def test_a_context_without_roles_is_recorded_as_before(store: FeatureStore) -> None:
    @context(store, max_tokens=50, model="gpt-4o")
    async def plain() -> list[ContextItem]:
        return [ContextItem("One."), ContextItem("Two.")]

    made = await plain()
    assert (made.content, made.request) == ("One.\n\nTwo.", None)
    record = await store.get_record(made.context_id)
    for field in (b'"message"', b'"counter"', b'"losses"', b'"max_output"'):
        assert field not in record.core
    assert made.messages == (Message(role="user", parts=(TextPart(content="One.\n\nTwo."),)),)


async def test_the_budget_counts_the_envelope_and_drops_a_call_with_its_result(
    store: FeatureStore,
) -> None:
    support = desk(store, conversation())
    whole = await support()
    less = await support.options(max_tokens=whole.tokens - 1)()
    items = (await recorded(store, less)).items
    assert [place for place, item in enumerate(items) if item.decision == "dropped"] == [3]
    assert less.tokens <= whole.tokens - 1
    tight = await support.options(max_tokens=80)()
    core = await recorded(store, tight)
    decisions = [item.decision for item in core.items]
    assert decisions[5] == decisions[6] == "dropped"
    assert tight.tokens <= 80


async def test_a_tool_is_worth_as_much_as_its_calls(store: FeatureStore) -> None:
    items = [
        ContextItem.tool("track", SCHEMA),
        ContextItem.tool("other", SCHEMA),
        ContextItem.tool_call("track", id="c-1", required=True),
        ContextItem.tool_result("c-1", "lost"),
        ContextItem("word " * 100, role="user", priority=3),
    ]
    made = await desk(store, items, max_tokens=150)()
    assert made.request is not None
    assert [tool.name for tool in made.request.tools] == ["track"]
    assert (await store.replay(made.context_id, "reassemble")).matches


async def test_the_body_of_a_context_without_roles_has_its_model_and_its_reserve(
    store: FeatureStore,
) -> None:
    @context(store, model="gpt-4o", max_output=100)
    async def plain() -> str:
        return "Hello"

    made = await plain()
    for source in (made, await store.get_context_at(made.context_id)):
        body = source.to_openai()
        assert (body["model"], body["max_completion_tokens"]) == ("gpt-4o", 100)
        assert source.to_anthropic()["max_tokens"] == 100


async def test_required_messages_that_do_not_fit_are_refused_with_the_budget_they_need(
    store: FeatureStore,
) -> None:
    support = desk(store, [ContextItem("word " * 50, role="system", required=True)], max_tokens=40)
    with pytest.raises(TokenBudgetError) as refused:
        await support()
    enough = desk_with(store, "enough", refused.value.needed)
    assert (await enough()).tokens == refused.value.needed


def desk_with(store: FeatureStore, name: str, max_tokens: int) -> ContextFunction[Any]:
    @context(store, name=name, model="gpt-4o", max_tokens=max_tokens)
    async def support() -> list[ContextItem]:
        return [
            ContextItem("word " * 50, role="system", required=True),
            ContextItem("Where is it?", role="user", required=True),
        ]

    return support


async def test_the_window_of_the_model_less_the_reserve_is_the_default_budget(
    store: FeatureStore,
) -> None:
    window = counter_for("gpt-4o").window
    assert window is not None
    made = await desk(store, conversation(), max_output=1_000)()
    assert made.lineage.max_tokens == window - 1_000
    tight = await desk_named(store, "tight", max_tokens=window, max_output=1_000)
    assert tight.lineage.max_tokens == window - 1_000
    unknown = await desk_named(store, "unknown", model="some/model")
    assert unknown.lineage.max_tokens is None
    with pytest.raises(ContextFailedError, match="leave room for what is sent"):
        await desk_named(store, "all", max_output=window)


async def desk_named(store: FeatureStore, name: str, **options: Any) -> Context:
    @context(store, name=name, **{"model": "gpt-4o"} | options)
    async def support() -> list[ContextItem]:
        return [ContextItem("Hello", role="user")]

    made: Context = await support()
    return made


@pytest.mark.parametrize(
    ("items", "problem"),
    [
        ([ContextItem.tool_result("c-1", "lost")], "has no call before it"),
        (
            [ContextItem.tool_result("c-1", "lost"), ContextItem.tool_call("track", id="c-1")],
            "has no call before it",
        ),
        (
            [ContextItem.tool_call("track", id="c-1"), ContextItem.tool_call("find", id="c-1")],
            "two tool calls have the id 'c-1'",
        ),
    ],
)
async def test_calls_and_results_that_no_provider_takes_are_refused(
    store: FeatureStore, items: list[ContextItem], problem: str
) -> None:
    with pytest.raises(ContextFailedError, match=problem):
        await desk(store, items)()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: Item("x", role="robot"), "role of a ContextItem is one of system, user"),
        (lambda: Item.tool_call("", id="c"), "name of a ContextItem is text"),
        (lambda: Item.tool_call("a", {"b": object()}, id="c"), "what JSON can express"),
        (lambda: Item.tool_result(3, "x"), "id of a ContextItem is text"),
        (lambda: Item.image(b"<svg/>"), "PNG, JPEG, GIF or WebP"),
        (lambda: Item.image(3), "bytes or the text of a URL, not int"),
        (lambda: Item.image(PNG + bytes(20_000_000)), "not bytes of 20,000,0.. bytes"),
        (lambda: Item.image(PNG, tokens=-1), "tokens of an image"),
        (lambda: Item("x", group=3), "group of a ContextItem is plain text or None"),
    ],
)
def test_an_invalid_item_is_refused_where_it_is_made(make: Callable[[], Any], problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        make()


async def test_the_explanation_names_messages_groups_and_how_tokens_were_counted(
    store: FeatureStore,
) -> None:
    made = await desk(store, conversation(), max_output=500)()
    trace = await store.records.explain(made.context_id)
    assert trace.count.grade == "estimate"  # of the tool, the call and the image
    assert "o200k_base" in trace.count.source
    assert trace.count.envelope_tokens is not None
    widths = [item.width for item in trace.items if item.width is not None]
    assert sum(widths) + trace.count.envelope_tokens == made.tokens
    messages = [item.message for item in trace.items if item.message is not None]
    assert [message.number for message in messages] == [0, 0, None, 1, 2, 3, 4, 5, 5]
    assert messages[5].group == messages[6].group == 5
    assert messages[7].image == PNG
    assert trace.max_output == 500
    plain = await desk_named(store, "plain")
    assert (await store.records.explain(plain.context_id)).count.grade == "exact"


async def test_what_the_provider_cannot_express_is_a_warning_in_the_record(
    store: FeatureStore,
) -> None:
    items = [ContextItem.reasoning("Let me think.", priority=3)]
    made = await desk(store, items)()
    core = await recorded(store, made)
    assert isinstance(core.output.losses, tuple)
    assert ("openai", 0) in {(loss.provider, loss.item) for loss in core.output.losses}
    assert any("item 0" in warning for warning in made.meta["warnings"])
    assert made.messages[0].parts == (Reasoning(content="Let me think."),)


async def test_a_record_without_content_withholds_messages_but_the_live_context_has_them(
    settings: Settings,
) -> None:
    private = settings.replace(record={"include_content": False})
    store = FeatureStore(settings=private)
    try:
        made = await desk(store, conversation())()
        assert len(made.messages) == 6
        past = await store.get_context_at(made.context_id)
        assert past.request is None
        with pytest.raises(InvalidInputError, match="withholds its messages"):
            _ = past.messages
        assert (await store.records.verify(made.context_id)).ok
    finally:
        await store.close()


async def test_an_image_can_be_redacted_and_the_record_still_verifies(store: FeatureStore) -> None:
    made = await desk(store, conversation())()
    await store.records.redact(made.context_id, "/items/7/message/data", reason="a face")
    assert (await store.records.verify(made.context_id, expect=made.record_hash)).ok
    past = await store.get_context_at(made.context_id)
    assert (past.request, past.content) == (None, made.content)
    trace = await store.records.explain(made.context_id)
    assert trace.items[7].message is not None
    assert trace.items[7].message.image is None


async def test_messages_of_a_tool_only_context(store: FeatureStore) -> None:
    @context(store)
    async def tools() -> list[ContextItem]:
        return [ContextItem.tool("track", SCHEMA)]

    made = await tools()
    assert made.request is not None
    assert made.messages == ()
    assert made.request.tools == (Tool(name="track", parameters=SCHEMA),)
