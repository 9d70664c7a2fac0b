"""Outcomes in traces: an answer is a span, a score is an event, by the GenAI conventions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from opentelemetry import trace
from opentelemetry._logs import set_logger_provider
from opentelemetry.sdk._logs import LoggerProvider, ReadableLogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.trace import SpanKind, StatusCode

from headwater import FeatureStore, Response, ServiceEvent, Usage, context, entity
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.telemetry.conftest import Spans

_exporter = InMemoryLogRecordExporter()  # type: ignore[no-untyped-call]


@pytest.fixture(scope="session")
def logs() -> InMemoryLogRecordExporter:
    """Return the exporter of the provider that an application has installed."""
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(_exporter))
    set_logger_provider(provider)
    return _exporter


@pytest.fixture
def events(logs: InMemoryLogRecordExporter) -> InMemoryLogRecordExporter:
    logs.clear()
    return logs


@pytest.fixture
async def open_store(
    settings: Settings, clock: ManualClock, spans: Spans
) -> AsyncIterator[FeatureStore]:
    """Yield a store whose traces have content."""
    chosen = settings.replace(telemetry={"enabled": True, "provider": "global", "content": True})
    opened = FeatureStore(settings=chosen, clock=clock)
    yield opened
    await opened.close()
    assert spans is not None


ANSWER = Response(
    model_asked="gpt-4o",
    model="gpt-4o-2024-11-20",
    provider="openai",
    usage=Usage(input=50, output=3),
    latency_ms=500.0,
)


def emitted(events: InMemoryLogRecordExporter) -> ReadableLogRecord:
    (record,) = events.get_finished_logs()
    return record


async def test_an_answer_is_a_span_in_the_current_trace(
    store: FeatureStore, spans: Spans, clock: ManualClock
) -> None:
    @context(store)
    async def support(question: str) -> str:
        return question

    made = await support("where?")
    with trace.get_tracer("app").start_as_current_span("request") as request:
        answer = await made.add_outcome(answer=ANSWER)
        await made.add_outcome(error="RateLimitError")
    span = spans.one("chat gpt-4o")
    assert span.attributes is not None
    assert span.attributes["gen_ai.operation.name"] == "chat"
    assert span.attributes["gen_ai.response.model"] == "gpt-4o-2024-11-20"
    assert span.attributes["gen_ai.usage.input_tokens"] == 50
    assert span.attributes["headwater.context.id"] == made.context_id
    assert span.attributes["headwater.outcome.id"] == answer.outcome_id
    assert "gen_ai.output.messages" not in span.attributes
    assert span.kind == SpanKind.CLIENT
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id
    assert span.start_time is not None
    assert span.end_time is not None
    assert (
        span.end_time - span.start_time
        == timedelta(seconds=0.5) // timedelta(microseconds=1) * 1000
    )
    failed = spans.one("chat")
    assert failed.status.status_code is StatusCode.ERROR
    assert failed.attributes is not None
    assert failed.attributes["error.type"] == "RateLimitError"


async def test_an_answer_links_to_the_span_that_it_names(store: FeatureStore, spans: Spans) -> None:
    @context(store)
    async def support(question: str) -> str:
        return question

    made = await support("where?")
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await made.add_outcome(answer=ANSWER, links={"traceparent": traceparent})
    (link,) = spans.one("chat gpt-4o").links
    assert f"{link.context.trace_id:032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"


async def test_a_score_is_an_event_and_is_exported_once(
    store: FeatureStore, spans: Spans, events: InMemoryLogRecordExporter
) -> None:
    @context(store)
    async def support(question: str) -> str:
        return question

    made = await support("where?")
    with trace.get_tracer("app").start_as_current_span("request") as request:
        for _ in range(2):
            await made.add_outcome(
                score="helpful", value=4, explanation="secret", source="app", source_id="1"
            )
    record = emitted(events).log_record
    assert record.event_name == "gen_ai.evaluation.result"
    assert record.attributes is not None
    assert record.attributes["gen_ai.evaluation.name"] == "helpful"
    assert record.attributes["gen_ai.evaluation.score.value"] == 4.0
    assert record.attributes["headwater.context.id"] == made.context_id
    assert record.trace_id == request.get_span_context().trace_id
    assert "secret" not in str(record.attributes)
    assert "secret" not in spans.texts()


async def test_content_is_exported_only_where_the_settings_ask_for_it(
    open_store: FeatureStore, spans: Spans, events: InMemoryLogRecordExporter
) -> None:
    @context(open_store)
    async def support(question: str) -> str:
        return question

    made = await support("where?")
    await made.add_outcome(answer="It arrives on Friday.", model="gpt-4o")
    await made.add_outcome(correction="It arrives on Monday.")
    span = spans.one("chat gpt-4o")
    assert span.attributes is not None
    assert "It arrives on Friday." in str(span.attributes["gen_ai.output.messages"])
    record = emitted(events).log_record
    assert record.event_name == "headwater.correction"
    assert "It arrives on Monday." in str(record.attributes)


async def test_an_answer_to_an_erased_context_is_a_span_without_texts(
    open_store: FeatureStore, spans: Spans
) -> None:
    @entity(open_store)
    class User:
        user_id: str

    @open_store.feature(User, trigger="named")
    async def name(user_id: str, event: ServiceEvent) -> str:
        return "Ada"

    @context(open_store)
    async def support(user_id: str) -> str:
        return str(await open_store.get_feature("name", user_id))

    await open_store.set_feature("name", "ada", "Ada")
    made = await support("ada")
    await made.add_outcome(answer="Dear Ada")
    assert "Dear Ada" in str(spans.one("chat").attributes)
    await open_store.admin.forget("User", "ada", reason="request 12")
    await made.add_outcome(answer="Dear Ada")
    _, later = spans.named("chat")
    assert "Ada" not in str(later.attributes)
