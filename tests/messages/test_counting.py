"""Counting requests: exact for OpenAI's texts, at least what is billed for everything else."""

from __future__ import annotations

import msgspec
import pytest

from headwater import ContextItem, FeatureStore, context
from headwater.core.models import default_models
from headwater.messages.counting import counter_for
from headwater.messages.parts import Blob, Reasoning, TextPart, Tool, ToolCall, ToolResult, Uri
from tests.messages.recorded_usage import FILE, Recording, predicted, recordings

RECORDINGS = recordings()


def _id(recording: Recording) -> str:
    return f"{recording.request.model}: {recording.source}"


@pytest.mark.parametrize("recording", [r for r in RECORDINGS if r.is_text], ids=_id)
def test_the_count_of_text_is_what_openai_bills(recording: Recording) -> None:
    counter = counter_for(recording.request.model)
    assert counter.grade == "exact"
    assert predicted(counter, recording.request) == recording.prompt_tokens


@pytest.mark.parametrize("recording", [r for r in RECORDINGS if not r.is_text], ids=_id)
def test_the_count_with_tools_is_at_least_what_openai_bills_and_little_more(
    recording: Recording,
) -> None:
    counter = counter_for(recording.request.model)
    more = predicted(counter, recording.request) - recording.prompt_tokens
    calls = sum(isinstance(p, ToolCall) for m in recording.request.messages for p in m.parts)
    assert 0 <= more <= 5 + 8 * calls


def test_recordings_cover_each_exact_family() -> None:
    families = {counter_for(r.request.model).model.family for r in RECORDINGS if r.is_text}
    assert families == {"gpt-4", "gpt-4o", "gpt-4-1-mini", "gpt-5", "gpt-5-mini", "gpt-6"}


def test_only_text_is_counted_exactly() -> None:
    counter = counter_for("gpt-4o")
    assert counter.part_grade(TextPart(content="Hello")) == "exact"
    for part in (
        Tool(name="f"),
        ToolCall(id="1", name="f", arguments={}),
        ToolResult(id="1", response="x"),
        Reasoning(content="x"),
        Uri(uri="https://example.com/a.png"),
        Blob(mime_type="image/png", content=b""),
    ):
        assert counter.part_grade(part) == "estimate"
        assert counter.part_tokens(part) > 0
    assert counter_for("claude-opus-5").part_grade(TextPart(content="Hello")) == "estimate"


def test_a_counter_says_where_its_numbers_come_from() -> None:
    counter = counter_for("gpt-4.1")
    assert counter.source == f"o200k_base, models of {default_models().as_of}"
    assert counter.window == 1_047_576


def test_a_window_that_the_table_does_not_have_is_that_of_the_prices() -> None:
    assert counter_for("grok-4.5").window == 500_000
    assert counter_for("my-own-model").window is None
    assert counter_for(None).window is None


def test_arguments_are_counted_without_spaces_and_results_as_they_are() -> None:
    counter = counter_for("gpt-4o")
    result = counter.part_tokens(ToolResult(id="1", response='{"a": 1}'))
    assert result == counter.tokenizer.count('{"a": 1}')
    assert counter.part_tokens(ToolResult(id="1", response={"a": 1})) <= result


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        [],
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": True}},
        {"type": "object", "properties": {"a": {"type": "array"}, "b": {"anyOf": [{}]}}},
        {"type": "object", "properties": 3, "required": None},
    ],
)
def test_any_schema_of_a_tool_can_be_counted(parameters: object) -> None:
    tool = Tool(name="f", description="Do it.", parameters=parameters)
    assert counter_for("gpt-4o").part_tokens(tool) > 5
    assert counter_for("my-own-model").part_tokens(tool) > 5


def test_a_tool_is_counted_with_what_its_schema_refers_to() -> None:
    line = {"type": "object", "properties": {"text": {"type": "string", "description": "A line."}}}
    inlined = {"type": "object", "properties": {"lines": {"type": "array", "items": line}}}
    referred = {
        "type": "object",
        "properties": {"lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}}},
        "$defs": {"Line": line},
    }
    root = {"$ref": "#/$defs/Lines", "$defs": {"Lines": inlined}}
    itself = {"$defs": {"Node": {"properties": {"next": {"$ref": "#/$defs/Node"}}}}}
    counted = [
        counter_for("gpt-4o").part_tokens(Tool(name="f", parameters=schema))
        for schema in (inlined, referred, root, {**itself, "$ref": "#/$defs/Node"})
    ]
    assert counted[0] == counted[1] == counted[2]
    assert counted[3] > 5


def test_a_schema_of_several_forms_is_counted_whole() -> None:
    option = {"type": "object", "properties": {"a": {"type": "string", "description": "x " * 300}}}
    for schema in ({"anyOf": [option, option]}, {"not": option}):
        tool = Tool(name="f", parameters=schema)
        assert counter_for("gpt-4o").part_tokens(tool) > 300


async def test_a_context_of_recorded_messages_has_the_tokens_that_were_billed(
    store: FeatureStore,
) -> None:
    recorded = zip(msgspec.json.decode(FILE.read_bytes()), RECORDINGS, strict=True)
    for number, (raw, recording) in enumerate(recorded):
        tools = [
            ContextItem.tool(tool.name, tool.parameters, tool.description)
            for tool in recording.request.tools
        ]
        said = ContextItem.conversation(raw["messages"], priority=5)

        @context(store, name=f"recorded_{number}", model=recording.request.model)
        async def recorded_context() -> list[ContextItem]:
            return [*tools, *said]  # noqa: B023 - it is called before the next is declared

        ctx = await recorded_context()
        more = ctx.tokens - recording.prompt_tokens
        assert more >= 0, recording
        assert more == 0 or not recording.is_text, recording
