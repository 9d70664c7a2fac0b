"""Tracing an open store: spans around what it does, and around the steps of that."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, ParamSpec, TypeVar

from headwater.core.tracing import Span, Tracer
from headwater.declarations.interceptors import Assemble, Commit, Interceptor, Publish, Search, Step
from headwater.engine import traced_contexts as contexts
from headwater.engine import traced_events as events
from headwater.engine.traced_contexts import Described

P = ParamSpec("P")
T = TypeVar("T")
_Call = Callable[..., Coroutine[Any, Any, Any]]


def _traced(
    describe: Callable[..., Described],
    finish: Callable[[Span, Any], None] | None = None,
    *,
    is_root: bool = True,
) -> _Call:
    """Return a call inside of a span; without a trace around it only if it may begin one."""

    async def call(tracer: Tracer, inner: _Call, *arguments: Any, **options: Any) -> Any:
        if not is_root and tracer.current() is None:
            return await inner(*arguments, **options)
        described = describe(*arguments)
        with tracer.span(described.name, described.attributes) as span:
            span.set_content(described.content)
            result = await inner(*arguments, **options)
            if finish is not None:
                finish(span, result)
            return result

    return call


_READ = _traced(contexts.read, is_root=False)
_QUERY = _traced(contexts.query, contexts.queried, is_root=False)
_ASSEMBLE = _traced(contexts.assemble, contexts.assembled)
_SEARCH = _traced(contexts.search, contexts.searched)
_STEPS: Mapping[Step, _Call] = {
    "event": events.handle,
    "refresh": events.refresh,
    "feature": events.call,
    "online.get": _READ,
    "online.get_packed": _READ,
    "online.get_with_waiting": _READ,
    "vectors.nearest": _QUERY,
    "vectors.matching": _QUERY,
    "records.append": _traced(contexts.record, is_root=False),
    "retrieve": _traced(contexts.retrieve, contexts.retrieved),
    "embed": _traced(contexts.embed),
    "fit": _traced(contexts.fit, contexts.fitted),
}


class Tracing(Interceptor):
    """Spans around publishing, committing, calls, assemblies and searches."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def publish(self, inner: Publish) -> Publish:
        return partial(events.publish, self._tracer, inner)

    def commit(self, inner: Commit) -> Commit:
        return partial(events.commit, self._tracer, inner)

    def call(
        self, step: Step, inner: Callable[P, Coroutine[Any, Any, T]]
    ) -> Callable[P, Coroutine[Any, Any, T]]:
        traced = _STEPS.get(step)
        return inner if traced is None else partial(traced, self._tracer, inner)

    def assemble(self, inner: Assemble) -> Assemble:
        return partial(_ASSEMBLE, self._tracer, inner)

    def search(self, inner: Search) -> Search:
        return partial(_SEARCH, self._tracer, inner)
