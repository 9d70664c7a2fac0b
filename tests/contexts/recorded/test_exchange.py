"""Outcomes as OTLP, and from Langfuse, OTLP and CSV: what is written and read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from headwater.contexts.recorded.imports import (
    MOST_ENTRIES,
    Sought,
    Unreadable,
    read_outcomes,
)
from headwater.contexts.recorded.otlp import to_otlp
from headwater.core.clock import from_micros
from headwater.errors import InvalidInputError
from headwater.messages.parts import (
    Blob,
    Message,
    Reasoning,
    TextPart,
    ToolCall,
    ToolResult,
    Uri,
)
from headwater.model.new_outcomes import facts_of
from headwater.model.outcomes import ImportFormat, Outcome, Response, Score, Usage

CONTEXT = "0193d5c1-8e22-7a11-9b55-3f2a66c0d001"
TRACE = CONTEXT.replace("-", "")
OUTCOME = "0193d5c1-9000-7000-8000-0000000000aa"
AT = datetime(2026, 11, 17, 12, 0, 0, 123456, tzinfo=UTC)


def outcome(**facts: Any) -> Outcome:
    given: dict[str, Any] = {
        "outcome_id": OUTCOME,
        "context_id": CONTEXT,
        "record_hash": "sha256:aa",
        "outcome_hash": "sha256:bb",
        "at": AT,
    }
    return Outcome(**given | facts)


def sought(text: str, file_format: ImportFormat) -> list[Sought]:
    read = read_outcomes(text, file_format)
    assert not [each for each in read if isinstance(each, Unreadable)]
    return [each for each in read if isinstance(each, Sought)]


def lines(outcomes: Sequence[Outcome]) -> str:
    return b"\n".join(to_otlp(outcomes)).decode()


TEXTS = st.text(max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
PARTS = st.one_of(
    st.builds(TextPart, content=TEXTS, cache=st.booleans()),
    st.builds(ToolCall, id=TEXTS, name=TEXTS, arguments=JSON),
    st.builds(ToolResult, id=TEXTS, response=JSON, is_error=st.booleans()),
    st.builds(Blob, mime_type=TEXTS, content=st.binary(max_size=9)),
    st.builds(Uri, uri=TEXTS, mime_type=st.none() | TEXTS),
    st.builds(Reasoning, content=TEXTS, block=JSON),
)
MESSAGES = st.lists(
    st.builds(
        Message,
        role=st.sampled_from(["assistant", "tool", "user", "system"]),
        parts=st.lists(PARTS, max_size=3).map(tuple),
        finish_reason=st.none() | TEXTS,
    ),
    max_size=3,
).map(tuple)
# Durations are rounded to nanoseconds.
DURATIONS = st.none() | st.integers(1, 10**12).map(lambda nanoseconds: nanoseconds / 1_000_000)
COUNTS = st.none() | st.integers(0, 2**53)
USAGES = st.none() | st.builds(
    Usage,
    input=st.integers(0, 2**53),
    output=COUNTS,
    cache_read=COUNTS,
    cache_write=COUNTS,
    reasoning=COUNTS,
    raw=JSON,
)
RESPONSES = st.builds(
    Response,
    messages=MESSAGES,
    response_id=st.none() | TEXTS,
    provider=st.none() | TEXTS,
    model_asked=st.none() | TEXTS,
    model=st.none() | TEXTS,
    finish_reasons=st.lists(TEXTS, max_size=2).map(tuple),
    usage=USAGES,
    latency_ms=DURATIONS,
    first_token_ms=DURATIONS,
    error_type=st.none() | TEXTS,
)
SCORES = st.builds(
    lambda name, said, explanation, identifier: Score(
        name=name, explanation=explanation, identifier=identifier, **said
    ),
    TEXTS,
    st.one_of(
        st.builds(lambda v: {"value": v}, st.floats(allow_nan=False, allow_infinity=False)),
        st.builds(lambda v: {"label": v}, TEXTS),
        st.builds(lambda v: {"flag": v}, st.booleans()),
        st.builds(lambda v: {"text": v}, TEXTS),
    ),
    st.none() | TEXTS,
    st.none() | TEXTS,
)
FACTS = st.fixed_dictionaries(
    {
        "actor": st.none() | TEXTS,
        "judge": st.sampled_from([None, "human", "model", "code"]),
        "links": st.dictionaries(TEXTS, TEXTS, max_size=2),
        "source": st.none() | TEXTS,
        "source_id": st.none() | TEXTS,
        "outcome_id": st.uuids().map(str),
        "at": st.integers(10**15, 4 * 10**15).map(from_micros),
    }
)


@st.composite
def outcomes(draw: st.DrawFn) -> Outcome:
    kind = draw(st.sampled_from(["response", "score", "correction", "error"]))
    facts: dict[str, Any] = draw(FACTS)
    if kind == "score":
        return outcome(kind=kind, score=draw(SCORES), **facts)
    response = draw(RESPONSES)
    if kind == "correction":
        response = msgspec.structs.replace(response, latency_ms=None)
    if kind == "error":
        response = msgspec.structs.replace(response, error_type="RateLimitError")
    return outcome(kind=kind, response=response, **facts)


@given(st.lists(outcomes(), min_size=1, max_size=3))
def test_what_is_written_as_otlp_is_read_again(written: list[Outcome]) -> None:
    read = sought(lines(written), "otlp")
    assert [each.line for each in read] == [*range(1, len(written) + 1)]
    for before, after in zip(written, read, strict=True):
        assert after.context_id == before.context_id
        facts = facts_of(after.given)
        assert after.given["at"] == before.at
        assert after.given["outcome_id"] == before.outcome_id
        for field in facts.__struct_fields__:
            assert getattr(facts, field) == getattr(before, field), field


def test_an_answer_is_a_span_of_the_conventions() -> None:
    response = Response(
        messages=(Message(role="assistant", parts=(TextPart(content="Friday."),)),),
        provider="openai",
        model_asked="gpt-4o",
        model="gpt-4o-2024-11-20",
        finish_reasons=("stop",),
        usage=Usage(input=100, output=7, cache_read=64),
        latency_ms=1500.0,
        first_token_ms=250.0,
    )
    score = Score(name="helpful", value=4.0, explanation="It names the day.")
    answer = outcome(kind="response", response=response)
    judged = outcome(kind="score", score=score, outcome_id=OUTCOME[:-1] + "b")
    span_line, event_line = to_otlp([answer, judged])
    span = json.loads(span_line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    attributes = {each["key"]: each["value"] for each in span["attributes"]}
    assert (span["name"], span["kind"], span["traceId"]) == ("chat gpt-4o", 3, TRACE)
    assert int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"]) == 1_500_000_000
    assert attributes["gen_ai.operation.name"] == {"stringValue": "chat"}
    assert attributes["gen_ai.usage.input_tokens"] == {"intValue": "100"}
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == {"intValue": "64"}
    assert attributes["gen_ai.response.time_to_first_chunk"] == {"doubleValue": 0.25}
    reasons = {"arrayValue": {"values": [{"stringValue": "stop"}]}}
    assert attributes["gen_ai.response.finish_reasons"] == reasons
    messages = json.loads(attributes["gen_ai.output.messages"]["stringValue"])
    assert messages == [{"role": "assistant", "parts": [{"type": "text", "content": "Friday."}]}]
    event = json.loads(event_line)["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0]
    assert event["eventName"] == "gen_ai.evaluation.result"
    assert (event["traceId"], event["spanId"]) == (TRACE, span["spanId"])
    attributes = {each["key"]: each["value"] for each in event["attributes"]}
    assert attributes["gen_ai.evaluation.name"] == {"stringValue": "helpful"}
    assert attributes["gen_ai.evaluation.score.value"] == {"doubleValue": 4.0}
    assert attributes["gen_ai.evaluation.explanation"] == {"stringValue": "It names the day."}


@given(outcomes())
def test_each_line_is_otlp_by_its_own_definition(written: Outcome) -> None:
    (line,) = to_otlp([written])
    document = json.loads(line)
    _as_hex_to_base64(document)
    if "resourceSpans" in document:
        _parsed(document, TracesData())
    else:
        _parsed(document, LogsData())


def _as_hex_to_base64(value: Any) -> None:
    """OTLP writes ids in hexadecimal digits, where the JSON of protobuf has base64."""
    for item in value.values() if isinstance(value, dict) else value:
        if isinstance(item, dict | list):
            _as_hex_to_base64(item)
    if isinstance(value, dict):
        for name in ("traceId", "spanId"):
            if name in value:
                assert len(bytes.fromhex(value[name])) == (16 if name == "traceId" else 8)
                value[name] = ""


def _parsed(document: Mapping[str, Any], message: TracesData | LogsData) -> None:
    ParseDict(document, message)


LANGFUSE = {
    "id": "score-1",
    "traceId": TRACE,
    "observationId": "obs-7",
    "name": "accuracy",
    "source": "ANNOTATION",
    "dataType": "NUMERIC",
    "value": 0.9,
    "comment": "good",
    "authorUserId": "ada",
    "configId": "config-3",
    "timestamp": "2026-11-17T10:00:00.000Z",
    "createdAt": "2026-11-17T10:00:01.000Z",
    "environment": "production",
    "metadata": {},
}


@pytest.mark.parametrize(
    ("changed", "score"),
    [
        ({}, {"value": 0.9}),
        ({"dataType": "CATEGORICAL", "value": 1, "stringValue": "good"}, {"label": "good"}),
        ({"dataType": "CATEGORICAL", "value": "good"}, {"label": "good"}),
        ({"dataType": "BOOLEAN", "value": 1, "stringValue": "True"}, {"flag": True}),
        ({"dataType": "BOOLEAN", "value": 0}, {"flag": False}),
        ({"dataType": "TEXT", "value": 0, "stringValue": "too long"}, {"text": "too long"}),
        ({"dataType": None, "value": 3}, {"value": 3.0}),
    ],
)
def test_scores_of_langfuse_keep_their_type(changed: dict[str, Any], score: dict[str, Any]) -> None:
    for text in (
        json.dumps({"data": [LANGFUSE | changed], "meta": {"page": 1}}),
        json.dumps([LANGFUSE | changed], indent=2),
        json.dumps(LANGFUSE | changed),
        json.dumps(LANGFUSE | changed) + "\n",
    ):
        (read,) = sought(text, "langfuse")
        facts = facts_of(read.given)
        assert facts.score == Score(
            name="accuracy", explanation="good", identifier="config-3", **score
        )
        assert (read.context_id, facts.source, facts.source_id) == (CONTEXT, "langfuse", "score-1")
        assert (facts.actor, facts.judge) == ("ada", "human")
        assert facts.links == {"trace_id": TRACE, "observation_id": "obs-7"}
        assert read.given["at"] == datetime(2026, 11, 17, 10, tzinfo=UTC)


def test_the_metadata_of_a_score_names_its_context_before_the_trace() -> None:
    other = CONTEXT.replace("d001", "d002")
    for name in ("headwater.context.id", "headwater_context_id", "context_id"):
        (read,) = sought(json.dumps(LANGFUSE | {"metadata": {name: other}}), "langfuse")
        assert read.context_id == other


def test_a_correction_of_langfuse_is_a_correction() -> None:
    corrected = {"dataType": "CORRECTION", "value": 0, "stringValue": "On Monday."}
    (read,) = sought(json.dumps(LANGFUSE | corrected | {"name": "output"}), "langfuse")
    facts = facts_of(read.given)
    assert facts.kind == "correction"
    assert facts.response is not None
    assert facts.response.messages[0].text == "On Monday."


def test_bad_lines_are_named_and_the_others_are_read() -> None:
    scores = [
        json.dumps(LANGFUSE),
        "{broken",
        "",
        json.dumps(LANGFUSE | {"traceId": None}),
        json.dumps(LANGFUSE | {"dataType": "NUMERIC", "value": None}),
        json.dumps({"hello": 1}),
        json.dumps(LANGFUSE | {"id": "score-2"}),
    ]
    read = read_outcomes("\n".join(scores), "langfuse")
    assert [(each.line, type(each)) for each in read] == [
        (1, Sought),
        (2, Unreadable),
        (4, Unreadable),
        (5, Unreadable),
        (6, Unreadable),
        (7, Sought),
    ]
    assert isinstance(read[2], Unreadable)
    assert "names no context" in read[2].problem


@pytest.mark.parametrize(("file_format", "text"), [("langfuse", "nonsense"), ("otlp", '{"a": 1}')])
def test_a_text_of_another_format_is_refused(file_format: ImportFormat, text: str) -> None:
    with pytest.raises(InvalidInputError, match="not a document of this format"):
        read_outcomes(text, file_format)


def test_a_text_with_too_many_outcomes_is_refused() -> None:
    table = "context_id,score,flag\n" + f"{CONTEXT},ok,yes\n" * (MOST_ENTRIES + 1)
    with pytest.raises(InvalidInputError, match="divide it"):
        read_outcomes(table, "csv")


def foreign_trace() -> dict[str, Any]:
    """A trace of another program: ours assembled the context in it, and theirs called a model."""
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"

    def attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
        return [{"key": key, "value": value} for key, value in values.items()]

    chat = {
        "traceId": trace,
        "spanId": "00f067aa0ba902b7",
        "name": "chat claude",
        "kind": 3,
        "startTimeUnixNano": "1763380800000000000",
        "endTimeUnixNano": "1763380802000000000",
        "attributes": attributes(
            {
                "gen_ai.operation.name": {"stringValue": "chat"},
                "gen_ai.system": {"stringValue": "anthropic"},
                "gen_ai.usage.cache_creation.input_tokens": {"intValue": 5},
                "gen_ai.usage.input_tokens": {"intValue": "12"},
                "gen_ai.output.messages": {
                    "arrayValue": {
                        "values": [
                            {
                                "kvlistValue": {
                                    "values": attributes(
                                        {
                                            "role": {"stringValue": "model"},
                                            "parts": {
                                                "arrayValue": {
                                                    "values": [
                                                        {
                                                            "kvlistValue": {
                                                                "values": attributes(
                                                                    {
                                                                        "type": {
                                                                            "stringValue": "poem"
                                                                        },
                                                                        "content": {
                                                                            "stringValue": "Hi"
                                                                        },
                                                                    }
                                                                )
                                                            }
                                                        }
                                                    ]
                                                }
                                            },
                                        }
                                    )
                                }
                            }
                        ]
                    }
                },
            }
        ),
        "events": [
            {
                "timeUnixNano": "1763380803000000000",
                "name": "gen_ai.evaluation.result",
                "attributes": attributes(
                    {
                        "gen_ai.evaluation.name": {"stringValue": "Relevance"},
                        "gen_ai.evaluation.score.label": {"stringValue": "relevant"},
                    }
                ),
            }
        ],
        "status": {},
    }
    assembled = {
        "traceId": trace,
        "spanId": "1111111111111111",
        "name": "assemble support",
        "attributes": attributes({"headwater.context.id": {"stringValue": CONTEXT}}),
    }
    other = {"traceId": trace, "spanId": "2222222222222222", "name": "GET /"}
    return {
        "resourceSpans": [{"resource": {}, "scopeSpans": [{"spans": [chat, other, assembled]}]}]
    }


def test_calls_and_evaluations_of_a_trace_belong_to_the_context_that_it_names() -> None:
    answer, judged = sought(json.dumps(foreign_trace(), indent=1), "otlp")
    assert (answer.line, answer.context_id, judged.context_id) == (1, CONTEXT, CONTEXT)
    facts = facts_of(answer.given)
    assert facts.response is not None
    assert facts.response.provider == "anthropic"
    assert facts.response.usage == Usage(input=12, cache_write=5)
    assert facts.response.latency_ms == 2000.0
    assert facts.response.messages == (Message(role="assistant", parts=(TextPart(content="Hi"),)),)
    assert facts.source == "otlp"
    assert facts.source_id != facts_of(judged.given).source_id
    assert facts.links["span_id"] == "00f067aa0ba902b7"
    assert facts_of(judged.given).score == Score(name="Relevance", label="relevant")
    assert judged.given["at"] - answer.given["at"] == timedelta(seconds=1)


def test_rows_of_a_table_are_outcomes() -> None:
    table = (
        "\ufeffcontext_id,score,value,flag,label,explanation,judge,at,answer\n"
        f'{CONTEXT},helpful,4.5,,,"two\nlines",human,2026-11-17T10:00:00+00:00,\n'
        "\n"
        f"{TRACE},ok,,yes,,,,,\n"
        f"{CONTEXT},,,,,,,,It arrives on Friday.\n"
        f"{CONTEXT},helpful,many,,,,,,\n"
        f"{CONTEXT},helpful,1,,,,a cat,,\n"
        ",helpful,1,,,,,,\n"
        f"{CONTEXT},helpful\n"
    )
    read = read_outcomes(table, "csv")
    assert [each.line for each in read] == [2, 5, 6, 7, 8, 9, 10]
    good = [each for each in read if isinstance(each, Sought)]
    facts = [facts_of(each.given) for each in good]
    assert {each.context_id for each in good} == {CONTEXT}
    assert facts[0].score == Score(name="helpful", value=4.5, explanation="two\nlines")
    assert facts[1].score == Score(name="ok", flag=True)
    assert facts[2].kind == "response"
    assert len({each.source_id for each in facts}) == 3
    problems = [each.problem for each in read if isinstance(each, Unreadable)]
    assert problems[0] == "value is 'many', which is not valid"
    assert "judge is 'a cat'" in problems[1]
    again = [each for each in read_outcomes(table, "csv") if isinstance(each, Sought)]
    assert [each.given for each in again] == [each.given for each in good]


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ("context_id,scor", "unknown column 'scor'; did you mean 'score'"),
        ("score,value", "the first line of the table"),
        ("context_id,score,score", "each once"),
        ("", "the first line of the table"),
    ],
)
def test_a_table_without_its_columns_is_refused(header: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        read_outcomes(f"{header}\nx,y,z\n", "csv")


@given(st.sampled_from(["langfuse", "otlp", "csv"]), st.text() | JSON.map(json.dumps))
def test_any_text_is_read_or_refused(file_format: ImportFormat, text: str) -> None:
    with suppress(InvalidInputError):
        read_outcomes(text, file_format)
