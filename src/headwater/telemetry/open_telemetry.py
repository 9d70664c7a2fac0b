"""Spans of OpenTelemetry, exported by OTLP or by the application's own provider."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from typing import Self

from opentelemetry import trace
from opentelemetry._logs import LoggerProvider, LogRecord, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
    use_span,
)
from opentelemetry.trace import Span as OtelSpan
from opentelemetry.trace import SpanKind as OtelSpanKind

from headwater.core.logging import log
from headwater.core.tracing import Attributes, Ending, SpanKind
from headwater.settings.groups import TelemetrySettings
from headwater.telemetry.attributes import ERROR_TYPE

_SCOPE = "headwater"
_EXPORTERS = "opentelemetry.exporter"
_KINDS: dict[SpanKind, OtelSpanKind] = {
    "internal": OtelSpanKind.INTERNAL,
    "server": OtelSpanKind.SERVER,
    "client": OtelSpanKind.CLIENT,
    "producer": OtelSpanKind.PRODUCER,
    "consumer": OtelSpanKind.CONSUMER,
}


def open_tracer(settings: TelemetrySettings, *, has_content: bool) -> OpenTelemetryTracer:
    """Return a tracer; the SDK reads the address of the collector from ``OTEL_…`` variables."""
    if settings.provider == "global":
        provider, logs = trace.get_tracer_provider(), get_logger_provider
    else:
        provider, logs = _otlp(settings), partial(_otlp_logs, settings)
    return OpenTelemetryTracer(provider, logs, has_content=has_content)


def _resource(settings: TelemetrySettings) -> Resource:
    # OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES name the service before our setting does.
    named = Resource({SERVICE_NAME: settings.service_name})
    return Resource.create().merge(named).merge(OTELResourceDetector().detect())


def _otlp_logs(settings: TelemetrySettings) -> SdkLoggerProvider:
    provider = SdkLoggerProvider(_resource(settings))
    provider.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
    return provider


def _otlp(settings: TelemetrySettings) -> TracerProvider:
    provider = TracerProvider(
        resource=_resource(settings), sampler=ParentBased(TraceIdRatioBased(settings.sample_ratio))
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    exporter_log = logging.getLogger(_EXPORTERS)
    exporter_log.propagate = False
    exporter_log.handlers = [_ExporterLog(logging.ERROR)]
    return provider


class _ExporterLog(logging.Handler):
    """Writes errors of the exporter as our log records; it logs each attempt as a warning."""

    def emit(self, record: logging.LogRecord) -> None:
        log.warning("spans not exported", error=record.getMessage())


class OpenTelemetrySpan:
    """A span; texts of errors and content are left out unless they are asked for."""

    __slots__ = ("_has_content", "_span")

    def __init__(self, span: OtelSpan, *, has_content: bool) -> None:
        self._span = span
        self._has_content = has_content

    @property
    def traceparent(self) -> str:
        return _traceparent(self._span.get_span_context())

    def set(self, attributes: Attributes) -> None:
        for name, value in attributes.items():
            if value is not None:
                self._span.set_attribute(name, value)

    def set_content(self, attributes: Callable[[], Attributes]) -> None:
        if self._has_content:
            self.set(attributes())

    def fail(self, error: BaseException | str) -> None:
        """Mark the step as failed; messages of exceptions may contain values of callers."""
        if isinstance(error, str):
            self._span.set_status(Status(StatusCode.ERROR, error))
            return
        self._span.set_attribute(ERROR_TYPE, type(error).__name__)
        message = str(error) if self._has_content else type(error).__name__
        self._span.set_status(Status(StatusCode.ERROR, message))

    @contextmanager
    def current(self) -> Iterator[Self]:
        with use_span(self._span, record_exception=False, set_status_on_exception=False):
            yield self

    def end(self, end_ns: int | None = None) -> None:
        self._span.end(end_ns)


class OpenTelemetryTracer:
    """Starts spans of a provider; that of events is opened when there is the first one."""

    def __init__(
        self,
        provider: trace.TracerProvider,
        logs: Callable[[], LoggerProvider],
        *,
        has_content: bool,
    ) -> None:
        self._tracer = provider.get_tracer(_SCOPE)
        self._logger = cache(lambda: logs().get_logger(_SCOPE))
        self._has_content = has_content

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = "internal",
        parent: str | None = None,
        links: Sequence[str] = (),
        start_ns: int | None = None,
    ) -> OpenTelemetrySpan:
        span = self._tracer.start_span(
            name,
            None if parent is None else _context(parent),
            _KINDS[kind],
            {key: value for key, value in attributes.items() if value is not None},
            [Link(_span_context(link)) for link in links],
            start_ns,
        )
        return OpenTelemetrySpan(span, has_content=self._has_content)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = "internal",
        parent: str | None = None,
    ) -> Iterator[OpenTelemetrySpan]:
        span = self.start(name, attributes, kind=kind, parent=parent)
        with Ending(span), span.current():
            yield span

    def current(self) -> str | None:
        context = trace.get_current_span().get_span_context()
        return _traceparent(context) if context.is_valid else None

    def event(
        self, name: str, attributes: Attributes, content: Callable[[], Attributes], at_ns: int
    ) -> None:
        given = {**attributes, **(content() if self._has_content else {})}
        shown = {key: value for key, value in given.items() if value is not None}
        self._logger().emit(LogRecord(timestamp=at_ns, event_name=name, attributes=shown))


def _traceparent(context: SpanContext) -> str:
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _span_context(traceparent: str) -> SpanContext:
    _, trace_id, span_id, flags = traceparent.split("-")
    return SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )


def _context(traceparent: str) -> Context:
    """Return a context that has nothing but the parent."""
    return set_span_in_context(NonRecordingSpan(_span_context(traceparent)), Context())
