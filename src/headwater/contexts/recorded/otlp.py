"""Outcomes as OTLP in JSON: spans and events of the GenAI conventions, written and read. Pure.

An answer, or a failed call, is a span; a score is the event ``gen_ai.evaluation.result``, and a
correction an event of our own. Attributes that begin with ``headwater.`` hold what the conventions
have no name for, so what is written can be read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple, get_args

import msgspec

from headwater.core.clock import from_micros, to_micros
from headwater.core.codec import encode_custom
from headwater.core.tracing import Attributes, AttributeValue
from headwater.messages.parts import Message, Part, Role, TextPart
from headwater.model.outcomes import Outcome, Response, Score, Usage
from headwater.telemetry import attributes as names

EVALUATION = "gen_ai.evaluation.result"
CORRECTION = "headwater.correction"
CHAT = "chat"
_OPERATIONS = (CHAT, "generate_content", "text_completion")
_CLIENT, _ERROR = 3, 2
_SPAN_DIGITS = slice(16, 32)
_NANOSECONDS_PER_MS = 1_000_000
_SCOPE = {"name": "headwater"}

_USAGE = {
    "input": (names.GEN_AI_INPUT_TOKENS,),
    "output": (names.GEN_AI_OUTPUT_TOKENS,),
    "cache_read": (names.GEN_AI_CACHE_READ,),
    "cache_write": (names.GEN_AI_CACHE_WRITE, "gen_ai.usage.cache_creation.input_tokens"),
    "reasoning": (names.GEN_AI_REASONING_TOKENS,),
}
"""The attributes of each number of tokens; the first is written, all are read."""
_RESPONSE = {
    "response_id": (names.GEN_AI_RESPONSE_ID,),
    "provider": (names.GEN_AI_PROVIDER, "gen_ai.system"),
    "model_asked": (names.GEN_AI_MODEL,),
    "model": (names.GEN_AI_RESPONSE_MODEL,),
    "error_type": (names.ERROR_TYPE,),
}
_SCORE = {
    "explanation": names.EVALUATION_EXPLANATION,
    "identifier": names.SCORE_IDENTIFIER,
}
_FACTS = {
    "actor": names.OUTCOME_ACTOR,
    "judge": names.OUTCOME_JUDGE,
    "source": names.OUTCOME_SOURCE,
    "source_id": names.OUTCOME_SOURCE_ID,
    "outcome_id": names.OUTCOME_ID,
}
_VALUES = ("value", "label", "flag", "text")


def response_attributes(response: Response) -> Attributes:
    """Return the attributes of a span for an answer, without its content."""
    first_token, usage = response.first_token_ms, response.usage or Usage()
    return {
        names.GEN_AI_OPERATION: CHAT,
        **{keys[0]: getattr(response, field) for field, keys in _RESPONSE.items()},
        **{keys[0]: getattr(usage, field) for field, keys in _USAGE.items()},
        names.GEN_AI_FINISH_REASONS: list(response.finish_reasons) or None,
        names.GEN_AI_FIRST_CHUNK: None if first_token is None else first_token / 1000,
    }


def response_content(response: Response) -> Attributes:
    """Return the attributes with the content of an answer."""
    raw = None if response.usage is None else response.usage.raw
    return {
        names.GEN_AI_OUTPUT_MESSAGES: _json(response.messages) if response.messages else None,
        names.USAGE_RAW: None if raw is None else _json(raw),
    }


def score_attributes(score: Score) -> Attributes:
    """Return the attributes of an evaluation, without texts."""
    value = float(score.flag) if score.flag is not None else score.value
    kind = next((name for name in _VALUES if getattr(score, name) is not None), None)
    return {
        names.EVALUATION_NAME: score.name,
        names.EVALUATION_VALUE: None if value is None else float(value),
        names.SCORE_KIND: kind,
    }


def score_content(score: Score) -> Attributes:
    """Return the attributes with the texts of an evaluation."""
    label = score.label if score.flag is None else str(score.flag).lower()
    return {
        names.EVALUATION_LABEL: label,
        names.SCORE_TEXT: score.text,
        **{name: getattr(score, field) for field, name in _SCORE.items()},
    }


def span_name(response: Response) -> str:
    """Return the name of the span of an answer."""
    model = response.model_asked or response.model
    return CHAT if model is None else f"{CHAT} {model}"


def started_ns(at: datetime, response: Response) -> int:
    """Return when a call began whose answer came at a moment."""
    return to_micros(at) * 1000 - round((response.latency_ms or 0) * _NANOSECONDS_PER_MS)


def to_otlp(outcomes: Sequence[Outcome]) -> Iterator[bytes]:
    """Yield a line of OTLP in JSON for each outcome of a context.

    The trace has the id of the context, and a score belongs to the span of the only answer.
    """
    answers = [each for each in outcomes if each.kind == "response"]
    only = answers[0].outcome_id if len(answers) == 1 else None
    for outcome in outcomes:
        yield _line(outcome, only)


def _line(outcome: Outcome, answer: str | None) -> bytes:
    response, score = outcome.response, outcome.score
    trace = {"traceId": outcome.context_id.replace("-", "")}
    moment, attributes = to_micros(outcome.at) * 1000, _facts(outcome)
    if response is not None:
        attributes |= {**response_attributes(response), **response_content(response)}
    if score is not None:
        attributes |= {**score_attributes(score), **score_content(score)}
    if response is not None and outcome.kind != "correction":
        span: dict[str, Any] = trace | {
            "spanId": _span_id(outcome.outcome_id),
            "name": span_name(response),
            "kind": _CLIENT,
            "startTimeUnixNano": str(started_ns(outcome.at, response)),
            "endTimeUnixNano": str(moment),
            "attributes": _encoded(attributes),
            "status": {"code": _ERROR} if outcome.kind == "error" else {},
        }
        return _wrapped("resourceSpans", "scopeSpans", "spans", span)
    event: dict[str, Any] = trace | {
        "timeUnixNano": str(moment),
        "eventName": CORRECTION if score is None else EVALUATION,
        "attributes": _encoded(attributes),
    }
    if answer is not None:
        event["spanId"] = _span_id(answer)
    return _wrapped("resourceLogs", "scopeLogs", "logRecords", event)


def _facts(outcome: Outcome) -> dict[str, AttributeValue | None]:
    return {
        names.CONTEXT_ID: outcome.context_id,
        names.RECORD_HASH: outcome.record_hash,
        names.OUTCOME_KIND: outcome.kind,
        names.OUTCOME_HASH: outcome.outcome_hash,
        names.TOKENS_PREDICTED: outcome.predicted,
        names.COST_NANO_USD: outcome.cost_nano_usd,
        names.OUTCOME_LINKS: _json(outcome.links) if outcome.links else None,
        **{name: getattr(outcome, field) for field, name in _FACTS.items()},
    }


def _span_id(outcome_id: str) -> str:
    return outcome_id.replace("-", "")[_SPAN_DIGITS]


def _wrapped(resources: str, scopes: str, entries: str, entry: Mapping[str, Any]) -> bytes:
    resource = {"attributes": _encoded({"service.name": "headwater"})}
    scope = {"scope": _SCOPE, entries: [entry]}
    return msgspec.json.encode({resources: [{"resource": resource, scopes: [scope]}]})


def _json(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=encode_custom).decode()


def _encoded(attributes: Attributes) -> list[dict[str, Any]]:
    return [
        {"key": name, "value": _any_value(value)}
        for name, value in attributes.items()
        if value is not None
    ]


def _any_value(value: AttributeValue) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, str):
        return {"stringValue": value}
    return {"arrayValue": {"values": [{"stringValue": item} for item in value]}}


class _AnyValue(msgspec.Struct, rename="camel"):
    string_value: str | None = None
    bool_value: bool | None = None
    int_value: int | str | None = None
    double_value: float | str | None = None
    array_value: _Values | None = None
    kvlist_value: _Attributes | None = None

    def plain(self) -> Any:
        """Return the value in builtin types."""
        if self.int_value is not None:
            return int(self.int_value)
        if self.double_value is not None:
            return float(self.double_value)
        if self.array_value is not None:
            return [value.plain() for value in self.array_value.values]
        if self.kvlist_value is not None:
            return _decoded(self.kvlist_value.values)
        return self.string_value if self.bool_value is None else self.bool_value


class _Values(msgspec.Struct):
    values: list[_AnyValue] = []


class _KeyValue(msgspec.Struct):
    key: str
    value: _AnyValue = msgspec.field(default_factory=_AnyValue)


class _Attributes(msgspec.Struct):
    values: list[_KeyValue] = []


def _decoded(attributes: Iterable[_KeyValue]) -> dict[str, Any]:
    return {each.key: each.value.plain() for each in attributes}


class _Status(msgspec.Struct):
    code: int | str = 0


class Entry(msgspec.Struct, rename="camel"):
    """A span, an event of one, or a log record."""

    trace_id: str = ""
    span_id: str = ""
    name: str = ""
    event_name: str = ""
    attributes: list[_KeyValue] = []
    start_time_unix_nano: int | str = 0
    end_time_unix_nano: int | str = 0
    time_unix_nano: int | str = 0
    observed_time_unix_nano: int | str = 0
    status: _Status = msgspec.field(default_factory=_Status)
    events: list[msgspec.Raw] = []


class _Scope(msgspec.Struct, rename="camel"):
    spans: list[msgspec.Raw] = []
    log_records: list[msgspec.Raw] = []


class _Resource(msgspec.Struct, rename="camel"):
    scope_spans: list[_Scope] = []
    scope_logs: list[_Scope] = []


class _Data(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    resource_spans: list[_Resource] = []
    resource_logs: list[_Resource] = []


def entries_of(text: bytes) -> list[msgspec.Raw]:
    """Return the spans and log records of OTLP data; raise msgspec.MsgspecError if it is not."""
    data = msgspec.json.decode(text, type=_Data)
    scopes = [scope for each in data.resource_spans for scope in each.scope_spans]
    scopes += [scope for each in data.resource_logs for scope in each.scope_logs]
    return [raw for scope in scopes for raw in (*scope.spans, *scope.log_records)]


class OtlpEntries(NamedTuple):
    """An outcome that an entry describes: its trace, its context if it names one, and the facts."""

    trace_id: str
    context_id: str | None
    given: dict[str, Any]


class NamedTrace(NamedTuple):
    """A trace whose spans name a context."""

    trace_id: str
    context_id: str


def read_entry(raw: msgspec.Raw, inside: Entry | None = None) -> Iterator[OtlpEntries | NamedTrace]:
    """Yield what an entry says about contexts; nothing if it is about something else.

    ``inside`` is the span of an event.

    Raises:
        msgspec.MsgspecError: It is neither a span nor a log record.
        ValueError: A value is not of the type that the conventions say.
    """
    entry = msgspec.json.decode(raw, type=Entry)
    if inside is not None:
        entry.trace_id, entry.span_id = inside.trace_id, inside.span_id
    attributes = _decoded(entry.attributes)
    name = entry.event_name or attributes.get("event.name") or entry.name
    if names.CONTEXT_ID in attributes:
        yield NamedTrace(entry.trace_id, str(attributes[names.CONTEXT_ID]))
    if name == EVALUATION:
        yield _found(entry, attributes, {"score": _score(attributes)})
    elif name == CORRECTION:
        yield _found(entry, attributes, {"correction": _response(attributes, entry)})
    elif attributes.get(names.GEN_AI_OPERATION) in _OPERATIONS and entry.end_time_unix_nano:
        response = _response(attributes, entry)
        is_error = entry.status.code in (_ERROR, "STATUS_CODE_ERROR")
        if is_error and response.error_type is None:
            response = msgspec.structs.replace(response, error_type="_OTHER")
        kind = attributes.get(names.OUTCOME_KIND, "error" if is_error else "response")
        yield _found(entry, attributes, {"error" if kind == "error" else "answer": response})
    for event in entry.events:  # deprecated, and still what many libraries write
        yield from read_entry(event, entry)


def _found(entry: Entry, attributes: Mapping[str, Any], said: dict[str, Any]) -> OtlpEntries:
    times = (entry.time_unix_nano, entry.end_time_unix_nano, entry.observed_time_unix_nano)
    nanoseconds = next((moment for moment in map(int, times) if moment), 0)
    given = said | {field: attributes[name] for field, name in _FACTS.items() if name in attributes}
    if nanoseconds:
        given["at"] = from_micros(nanoseconds // 1000)
    if names.OUTCOME_LINKS in attributes:
        given["links"] = msgspec.json.decode(attributes[names.OUTCOME_LINKS], type=dict[str, str])
    if names.OUTCOME_ID not in attributes:  # not one of ours
        name = str(attributes.get(names.EVALUATION_NAME, ""))
        content = blake2b(
            msgspec.json.encode(attributes, order="sorted"), digest_size=8
        ).hexdigest()
        place = (entry.trace_id, entry.span_id, str(nanoseconds), name, content)
        given |= {"source": "otlp", "source_id": ":".join(place)}
        if entry.trace_id and entry.span_id:
            given["links"] = {"trace_id": entry.trace_id, "span_id": entry.span_id}
    context_id = attributes.get(names.CONTEXT_ID)
    return OtlpEntries(entry.trace_id, None if context_id is None else str(context_id), given)


def _score(attributes: Mapping[str, Any]) -> Score:
    value, label = attributes.get(names.EVALUATION_VALUE), attributes.get(names.EVALUATION_LABEL)
    kind = attributes.get(names.SCORE_KIND, "label" if value is None else "value")
    text = attributes.get(names.SCORE_TEXT)
    said = {
        "value": value,
        "label": label,
        "flag": None if value is None else bool(value),
        "text": attributes.get(names.EVALUATION_EXPLANATION) if text is None else text,
    }
    if said.get(kind) is None:
        kind = "text"  # only an explanation
    facts = {field: attributes.get(name) for field, name in _SCORE.items()}
    if kind == "value" and label is not None:  # a score has one of them
        facts["explanation"] = ": ".join(filter(None, (label, facts["explanation"])))
    name = attributes.get(names.EVALUATION_NAME)
    return msgspec.convert({"name": name, kind: said[kind], **facts}, Score)


def _response(attributes: Mapping[str, Any], entry: Entry) -> Response:
    usage = {field: _first(attributes, keys) for field, keys in _USAGE.items()}
    if names.USAGE_RAW in attributes:
        usage["raw"] = msgspec.json.decode(attributes[names.USAGE_RAW])
    took = int(entry.end_time_unix_nano) - int(entry.start_time_unix_nano)
    first_token = attributes.get(names.GEN_AI_FIRST_CHUNK)
    facts = {field: _first(attributes, keys) for field, keys in _RESPONSE.items()}
    return msgspec.convert(
        {
            **facts,
            "messages": _messages(attributes.get(names.GEN_AI_OUTPUT_MESSAGES, "[]")),
            "finish_reasons": attributes.get(names.GEN_AI_FINISH_REASONS, ()),
            "usage": usage if any(value is not None for value in usage.values()) else None,
            "latency_ms": took / _NANOSECONDS_PER_MS if took > 0 else None,
            "first_token_ms": None if first_token is None else round(first_token * 1e9) / 1e6,
        },
        Response,
    )


def _first(attributes: Mapping[str, Any], keys: Sequence[str]) -> Any:
    return next((attributes[key] for key in keys if key in attributes), None)


def _messages(value: Any) -> Sequence[Message]:
    """Return messages, as JSON text or structured; parts of unknown kinds are left out."""
    written = msgspec.json.decode(value) if isinstance(value, str) else value
    try:
        return msgspec.convert(written, tuple[Message, ...])
    except msgspec.ValidationError:
        return [_message(each) for each in msgspec.convert(written, list[dict[str, Any]])]


def _message(written: Mapping[str, Any]) -> Message:
    role: Role = written["role"] if written.get("role") in get_args(Role) else "assistant"
    parts: list[Part] = []
    for part in msgspec.convert(written.get("parts", []), list[dict[str, Any]]):
        result = {"response": part["result"]} if "result" in part else {}
        try:
            parts.append(msgspec.convert(part | result, Part))
        except msgspec.ValidationError:
            if isinstance(part.get("content"), str):
                parts.append(TextPart(content=part["content"]))
    return Message(
        role=role,
        parts=tuple(parts),
        finish_reason=written.get("finish_reason"),
    )
