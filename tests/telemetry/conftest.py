"""A store whose spans are kept in memory."""

from collections.abc import AsyncIterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headwater import FeatureStore
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

_exporter = InMemorySpanExporter()


class Spans:
    """The spans that have ended."""

    def all(self) -> list[ReadableSpan]:
        return list(_exporter.get_finished_spans())

    def names(self) -> list[str]:
        return [span.name for span in self.all()]

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def traces(self) -> set[int]:
        return {span.context.trace_id for span in self.all() if span.context}

    def texts(self) -> str:
        """Return everything that would be exported."""
        return "\n".join(span.to_json() for span in self.all())


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    """Return whether a span is directly inside of another."""
    assert span.parent is not None
    assert parent.context is not None
    inside, outside = span.parent, parent.context
    return bool((inside.trace_id, inside.span_id) == (outside.trace_id, outside.span_id))


@pytest.fixture(scope="session")
def provider() -> TracerProvider:
    """Return the provider that an application has installed; there is one for each process."""
    installed = TracerProvider()
    installed.add_span_processor(SimpleSpanProcessor(_exporter))
    trace.set_tracer_provider(installed)
    return installed


@pytest.fixture
def spans(provider: TracerProvider) -> Spans:
    """Return the spans of this test."""
    assert provider is not None
    _exporter.clear()
    return Spans()


@pytest.fixture
async def store(
    settings: Settings, clock: ManualClock, spans: Spans
) -> AsyncIterator[FeatureStore]:
    """Yield a new store that is traced by the provider of the application."""
    traced = settings.replace(telemetry={"enabled": True, "provider": "global"})
    opened = FeatureStore(settings=traced, clock=clock)
    yield opened
    await opened.close()
    assert spans is not None
