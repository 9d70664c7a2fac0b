"""The seam to a tracer: the spans that the store needs, and the W3C trace context of an event."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, Self

RequestHeaders = Iterable[tuple[bytes, bytes]]
SpanKind = Literal["internal", "server", "client", "producer", "consumer"]
AttributeValue = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, AttributeValue | None]
"""Attributes of a span by name; None leaves one out."""

TRACEPARENT = re.compile(
    "(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
)
_TRACE_ID = slice(3, 35)
_SAMPLED = 1


def is_traceparent(text: str) -> bool:
    """Return whether a text is a valid value of the W3C header ``traceparent``."""
    return TRACEPARENT.fullmatch(text) is not None


def trace_id(traceparent: str) -> str:
    """Return the id of the trace, in hexadecimal digits."""
    return traceparent[_TRACE_ID]


def is_sampled(traceparent: str) -> bool:
    """Return whether the spans of the trace are exported."""
    return bool(int(traceparent[-2:], 16) & _SAMPLED)


def header_traceparent(headers: RequestHeaders) -> str | None:
    """Return the ``traceparent`` of a request, or None if it is missing or invalid."""
    for name, value in headers:
        if name == b"traceparent":
            text = value.decode("latin-1").strip()
            return text if is_traceparent(text) else None
    return None


class Span(Protocol):
    """A step that is being measured."""

    @property
    def traceparent(self) -> str:
        """The trace context with which other processes continue the trace."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes, which must not contain texts, payloads or ids of callers."""

    def set_content(self, attributes: Callable[[], Attributes]) -> None:
        """Add attributes with content; it is called only if the settings ask for content."""

    def fail(self, error: BaseException | str) -> None:
        """Mark the step as failed, with the error or a short constant text."""

    def current(self) -> AbstractContextManager[Self]:
        """Make it the parent of the spans inside, also those of other libraries."""

    def end(self, end_ns: int | None = None) -> None: ...


class Tracer(Protocol):
    """Starts spans."""

    def start(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = "internal",
        parent: str | None = None,
        links: Sequence[str] = (),
        start_ns: int | None = None,
    ) -> Span:
        """Start a span that is not the current one; ``parent`` and ``links`` are traceparents.

        Without a ``parent``, it is inside of the current span, if there is one.
        """

    def span(
        self,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = "internal",
        parent: str | None = None,
    ) -> AbstractContextManager[Span]:
        """Start a span, make it the current one, and end it; an exception marks it as failed."""

    def current(self) -> str | None:
        """Return the traceparent of the current span, or None if there is none."""

    def event(
        self, name: str, attributes: Attributes, content: Callable[[], Attributes], at_ns: int
    ) -> None:
        """Emit an event of the current span, or of none.

        ``content`` is called only if the settings ask for content.
        """


class Ending:
    """Ends a span that was started before; an exception marks it as failed."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self._span.fail(error)
        self._span.end()


def step(
    tracer: Tracer | None, name: str, attributes: Attributes
) -> AbstractContextManager[Span | None]:
    """Return a span for a step, or nothing without a tracer."""
    return nullcontext() if tracer is None else tracer.span(name, attributes)
