"""Tracing an open store: its ports and its steps are wrapped once, when it is opened.

A store without a tracer is not wrapped, so that it pays nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Any, Protocol

from headwater.contexts.assembler import Assembler
from headwater.core.tracing import Span, Tracer
from headwater.core.wrapping import wrap_method
from headwater.engine import traced_contexts, traced_events
from headwater.engine.traced_contexts import Described
from headwater.features.event_handlers import EventHandlers
from headwater.features.refresh import Refresh
from headwater.features.user_calls import FeatureCalls
from headwater.ports import Backends
from headwater.retrieval.embeddings import Embedder, Embedders
from headwater.retrieval.retrievers import Retrievers
from headwater.retrieval.search import Searcher

_Method = Callable[..., Awaitable[Any]]


class TracedParts(Protocol):
    """The parts of an engine that are traced."""

    @property
    def handlers(self) -> EventHandlers: ...

    @property
    def refresh(self) -> Refresh: ...

    @property
    def feature_calls(self) -> FeatureCalls: ...

    @property
    def assembler(self) -> Assembler: ...

    @property
    def retrievers(self) -> Retrievers: ...

    @property
    def searcher(self) -> Searcher: ...

    @property
    def embedders(self) -> Embedders: ...


def trace_backends(tracer: Tracer, backends: Backends) -> None:
    """Wrap the ports, before other parts keep their methods."""
    wrap_method(backends.bus, "publish", partial(traced_events.publish, tracer))
    wrap_method(backends.bus, "commit", partial(traced_events.commit, tracer))
    inside = partial(_step, tracer, is_root=False)
    for method in ("get", "get_packed", "get_with_waiting"):
        wrap_method(backends.online, method, partial(_read, tracer))
    for method in ("nearest", "matching"):
        queried = partial(inside, traced_contexts.query, traced_contexts.queried)
        wrap_method(backends.vectors, method, queried)
    wrap_method(backends.records, "append", partial(inside, traced_contexts.record, None))


def trace_parts(tracer: Tracer, parts: TracedParts) -> None:
    """Wrap the parts of an open store: what workers run, assemblies, searches and embedders."""
    wrap_method(parts.handlers, "handle", partial(traced_events.handle, tracer))
    wrap_method(parts.refresh, "handle", partial(traced_events.refresh, tracer))
    wrap_method(parts.feature_calls, "call", partial(traced_events.call, tracer))
    steps, root = traced_contexts, partial(_step, tracer)
    wrap_method(parts.assembler, "run", partial(root, steps.assemble, steps.assembled))
    wrap_method(parts.assembler, "fit", partial(root, steps.fit, steps.fitted))
    wrap_method(parts.retrievers, "run", partial(root, steps.retrieve, steps.retrieved))
    wrap_method(parts.searcher, "run", partial(root, steps.search, steps.searched))
    _trace_embedders(tracer, parts.embedders)


def _trace_embedders(tracer: Tracer, embedders: Embedders) -> None:
    """Wrap every embedder that is created."""

    def created(embedder: Embedder) -> None:
        describe = partial(traced_contexts.embed, embedder.name, embedder.dimensions)
        wrap_method(embedder, "embed", partial(_step, tracer, describe, None))

    embedders.on_created = created


_is_reading: ContextVar[bool] = ContextVar("headwater_is_reading", default=False)


async def _read(tracer: Tracer, inner: _Method, entity: str, entity_ids: Sequence[str]) -> Any:
    """Read values inside of a span; a backend may call one read by another."""
    if _is_reading.get():
        return await inner(entity, entity_ids)
    token = _is_reading.set(True)
    try:
        described = traced_contexts.read
        return await _step(tracer, described, None, inner, entity, entity_ids, is_root=False)
    finally:
        _is_reading.reset(token)


async def _step(
    tracer: Tracer,
    describe: Callable[..., Described],
    finish: Callable[[Span, Any], None] | None,
    inner: _Method,
    *arguments: Any,
    is_root: bool = True,
    **options: Any,
) -> Any:
    """Call a method inside of a span; without a trace around it only if it may begin one."""
    if not is_root and tracer.current() is None:
        return await inner(*arguments, **options)
    described = describe(*arguments)
    with tracer.span(described.name, described.attributes) as span:
        span.set_content(described.content)
        result = await inner(*arguments, **options)
        if finish is not None:
            finish(span, result)
        return result
