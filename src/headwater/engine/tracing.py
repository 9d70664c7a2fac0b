"""Tracing an open store: spans around what it does, and around the steps of that.

Publish, process, each feature's function, and commit of an event are one trace, whose context
travels in the event. Handlers run as coroutines that move between tasks, so nothing here is the
current span while one waits, except inside of the function of a user. Assemblies have spans for
their reads, searches, embeddings, fitting and record; reads and searches outside of a trace begin
none.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from copy import copy
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

import msgspec
from msgspec.structs import force_setattr, replace

from headwater.contexts.budget import Candidate, Fitted
from headwater.contexts.recorded import otlp
from headwater.contexts.recorded.external import EXTERNAL
from headwater.contexts.recorded.verification import decode_outcome
from headwater.core.clock import to_micros
from headwater.core.codec import encode_custom
from headwater.core.deadlines import Slot
from headwater.core.tracing import (
    Attributes,
    Ending,
    Span,
    Tracer,
    is_sampled,
    is_traceparent,
    trace_id,
)
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import FeatureDef
from headwater.declarations.indexes import IndexDef
from headwater.declarations.interceptors import (
    Assemble,
    Commit,
    Interceptor,
    Publish,
    Search,
    Step,
)
from headwater.declarations.items import Chunk
from headwater.declarations.retrievers import RetrieverDef, SearchOptions
from headwater.features.batch_state import BatchState
from headwater.features.call_scope import CallScope
from headwater.features.refresh import Refreshed
from headwater.model.events import PublishResult
from headwater.model.lineage import Context
from headwater.model.outcomes import Outcome
from headwater.model.values import ServiceEvent
from headwater.ports import (
    BatchOutcome,
    Delivery,
    Handled,
    Lease,
    StoredOutcome,
    StoredRecord,
    Subjects,
    VectorQuery,
    no_subjects,
)
from headwater.records.outcomes import outcome_view
from headwater.retrieval.embeddings import Embedder
from headwater.telemetry import attributes as names

P = ParamSpec("P")
T = TypeVar("T")
_AnyCall = Callable[..., Coroutine[Any, Any, Any]]

_MOST_LINKS = 32
_TRACEPARENT = "traceparent"
"""The link of an outcome to the span of its call."""
_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


async def _publish(
    tracer: Tracer,
    inner: Publish,
    events: Sequence[ServiceEvent],
    *,
    dedup_window: timedelta | None,
    subjects: Subjects = no_subjects,
    positions: bool = False,
) -> list[PublishResult]:
    """Publish events inside of the caller's trace, or of the one that the first event is of.

    An event that the publisher gave another trace keeps it, and the span has a link to it.
    """
    given = dict.fromkeys(e.traceparent for e in events if isinstance(e.traceparent, str))
    parent = tracer.current() or next(iter(given), None)
    others = [
        traceparent for traceparent in given if parent and trace_id(traceparent) != trace_id(parent)
    ]
    only = events[0] if len(events) == 1 else None
    span = tracer.start(
        "publish",
        _messaging("send", only, len(events)),
        kind="producer",
        parent=parent,
        links=others[:_MOST_LINKS],
    )
    with Ending(span):
        if only is not None:
            span.set_content(lambda: _content(only))
        context = span.traceparent
        sent = [
            event if event.traceparent in others else replace(event, traceparent=context)
            for event in events
        ]
        return await inner(sent, dedup_window=dedup_window, subjects=subjects, positions=positions)


async def _handle(
    tracer: Tracer,
    inner: Callable[..., Awaitable[Handled]],
    state: BatchState,
    delivery: Delivery,
    features: Sequence[FeatureDef],
    slot: Slot,
) -> Handled:
    """Run the features of an event; the commit continues the trace in the event of the result."""
    event = delivery.event
    if isinstance(event.traceparent, str) and not is_sampled(event.traceparent):
        return await inner(state, delivery, features, slot)
    # Clients choose the types of events that trigger nothing, and names of spans are few.
    name = f"process {event.event_type}" if features else "process event"
    parent = event.traceparent or None
    span = tracer.start(name, _messaging("process", event), kind="consumer", parent=parent)
    with Ending(span):
        span.set_content(lambda: _content(event))
        inside = replace(delivery, event=replace(event, traceparent=span.traceparent))
        handled = await inner(state, inside, features, slot)
        span.set({names.FEATURES_UPDATED: handled.updated, names.RETRIES: handled.retries})
        _fail_if_dead(span, handled)
        return handled


async def _call(
    tracer: Tracer,
    inner: Callable[..., Awaitable[object]],
    slot: Slot,
    scope: CallScope | None,
    feature: FeatureDef,
    entity_id: str,
    *rest: object,
) -> object:
    """Call the function of a feature inside of a span; one of a handler is in its event's trace."""
    event = rest[0] if scope is not None and rest and isinstance(rest[0], ServiceEvent) else None
    attributes = {names.FEATURE: feature.name, names.ENTITY: feature.entity.name}
    parent = None if event is None else event.traceparent or None
    span = tracer.start(f"feature {feature.name}", attributes, parent=parent)
    with Ending(span):
        span.set_content(lambda: {names.ENTITY_ID: entity_id})
        return await inner(slot, scope, _inside(feature, span), entity_id, *rest)


async def _refresh(
    tracer: Tracer,
    inner: Callable[..., Awaitable[Refreshed]],
    state: BatchState,
    delivery: Delivery,
    lease: Lease,
) -> Refreshed:
    """Run a tick; the event that continues it is in the same trace."""
    event = delivery.event
    attributes = {names.FEATURE: event.entity_id, names.MESSAGING_PARTITION: str(lease.partition)}
    name, parent = f"refresh {event.entity_id}", event.traceparent or None
    with tracer.span(name, attributes, parent=parent) as span:
        refreshed = await inner(state, delivery, lease)
        if refreshed.handled.failures:
            span.fail("refresh failed")
        context, follow_up = span.traceparent, refreshed.follow_up
        return Refreshed(
            replace(refreshed.handled, event=replace(event, traceparent=context)),
            follow_up and replace(follow_up, traceparent=context),
        )


async def _commit(tracer: Tracer, inner: Commit, outcome: BatchOutcome) -> None:
    """Commit a batch; each event whose trace is exported has a span of the commit."""
    began = time.time_ns()
    failed: BaseException | None = None
    try:
        await inner(outcome)
    except BaseException as error:
        failed = error
        raise
    finally:
        ended = time.time_ns()
        for handled in outcome.handled:
            parent = handled.event.traceparent
            if isinstance(parent, str) and is_sampled(parent):
                attributes = {
                    **_messaging("commit", handled.event, len(outcome.handled)),
                    names.MESSAGING_OPERATION_TYPE: "settle",
                    names.MESSAGING_PARTITION: str(outcome.batch.lease.partition),
                }
                span = tracer.start("commit", attributes, parent=parent, start_ns=began)
                if failed is None:
                    _fail_if_dead(span, handled)
                else:
                    span.fail(failed)
                span.end(ended)


def _inside(feature: FeatureDef, span: Span) -> FeatureDef:
    """Return a feature whose function runs inside of a span, in its task or thread."""
    function: Callable[..., Any] = feature.function

    async def run(*arguments: Any) -> Any:
        with span.current():
            return await function(*arguments)

    def run_here(*arguments: Any) -> Any:
        with span.current():
            return function(*arguments)

    traced = copy(feature)
    force_setattr(traced, "function", run if feature.is_async else run_here)
    return traced


def _messaging(operation: str, event: ServiceEvent | None, count: int | None = None) -> Attributes:
    return {
        names.MESSAGING_SYSTEM: "headwater",
        names.MESSAGING_OPERATION: operation,
        names.MESSAGING_OPERATION_TYPE: operation,
        names.MESSAGING_BATCH_COUNT: count,
        names.MESSAGING_MESSAGE_ID: None if event is None else event.event_id,
        names.EVENT_TYPE: None if event is None else event.event_type,
    }


def _content(event: ServiceEvent) -> Attributes:
    payload = _encode(event.payload).decode()
    return {names.ENTITY_ID: event.entity_id, names.EVENT_PAYLOAD: payload}


def _fail_if_dead(span: Span, handled: Handled) -> None:
    if handled.failures:
        span.set({names.DEAD_LETTERS: [failure.feature for failure in handled.failures]})
        span.fail("dead letter")


class _Described(NamedTuple):
    """A call: the name of its span, its attributes, and the content that it may export."""

    name: str
    attributes: Attributes
    content: Callable[[], Attributes] = dict


def _assemble(
    definition: ContextDef, arguments: Sequence[Any], named: Mapping[str, Any], _: object
) -> _Described:
    """Describe the assembly of a context; callers choose the names of those recorded for others."""
    return _Described(
        "assemble" if definition.location == EXTERNAL else f"assemble {definition.name}",
        {names.CONTEXT: definition.name, names.GEN_AI_MODEL: definition.model},
        lambda: {names.CONTEXT_INPUTS: repr([*arguments, *named.items()])},
    )


def _assembled(span: Span, context: Context) -> None:
    span.set(
        {
            names.CONTEXT_ID: context.context_id,
            names.RECORD_HASH: context.record_hash,
            names.IS_RECORDED: context.meta["recorded"],
            names.FRESHNESS: context.freshness_status,
            names.STALEST_MS: context.lineage.stalest_ms,
            names.VIOLATIONS: [violation.name for violation in context.freshness_violations],
            names.GEN_AI_INPUT_TOKENS: context.tokens,
        }
    )
    span.set_content(lambda: {names.CONTEXT_TEXT: context.content})


def _fit(candidates: Sequence[Candidate], *_: object) -> _Described:
    return _Described("fit", {names.ITEMS: len(candidates)})


def _fitted(span: Span, result: Fitted) -> None:
    dropped = sum(choice.decision == "dropped" for choice in result.choices)
    span.set({names.GEN_AI_INPUT_TOKENS: result.tokens, names.ITEMS_DROPPED: dropped})


def _record(stored: StoredRecord, _: Collection[bytes]) -> _Described:
    return _Described(
        "record",
        {
            names.CONTEXT: stored.name,
            names.CONTEXT_ID: stored.context_id,
            names.RECORD_HASH: stored.record_hash,
            names.FRESHNESS: stored.freshness_status,
        },
    )


async def _append_outcome(
    tracer: Tracer, inner: Callable[..., Awaitable[StoredOutcome]], row: StoredOutcome
) -> StoredOutcome:
    """Store an outcome; a new answer has a span, and a new score or correction an event."""
    stored = await inner(row)
    if stored.outcome_id == row.outcome_id:
        # As stored: that of an erased context has no texts.
        _export_outcome(tracer, outcome_view(decode_outcome(stored)))
    return stored


def _export_outcome(tracer: Tracer, outcome: Outcome) -> None:
    response, score, ended_ns = outcome.response, outcome.score, to_micros(outcome.at) * 1000
    attributes = {
        names.CONTEXT_ID: outcome.context_id,
        names.RECORD_HASH: outcome.record_hash,
        names.OUTCOME_ID: outcome.outcome_id,
        names.OUTCOME_KIND: outcome.kind,
        names.OUTCOME_JUDGE: outcome.judge,
        names.TOKENS_PREDICTED: outcome.predicted,
        names.COST_NANO_USD: outcome.cost_nano_usd,
    }
    if score is not None:
        evaluated = {**attributes, **otlp.score_attributes(score)}
        tracer.event(otlp.EVALUATION, evaluated, lambda: otlp.score_content(score), ended_ns)
    elif response is not None and outcome.kind == "correction":
        said = partial(otlp.response_content, response)
        tracer.event(otlp.CORRECTION, attributes, said, ended_ns)
    elif response is not None:
        traceparent = outcome.links.get(_TRACEPARENT, "")
        span = tracer.start(
            otlp.span_name(response),
            {**attributes, **otlp.response_attributes(response)},
            kind="client",
            links=[traceparent] if is_traceparent(traceparent) else [],
            start_ns=otlp.started_ns(outcome.at, response),
        )
        span.set_content(lambda: otlp.response_content(response))
        if outcome.kind == "error":
            span.fail(response.error_type or "error")
        span.end(ended_ns)


def _read(entity: str, entity_ids: Sequence[str]) -> _Described:
    return _Described(
        f"read {entity}",
        {names.ENTITY: entity, names.ENTITY_COUNT: len(entity_ids)},
        lambda: {names.ENTITY_ID: list(entity_ids)},
    )


def _retrieve(retriever: RetrieverDef, *_: object) -> _Described:
    attributes = {names.RETRIEVER: retriever.name, names.GEN_AI_OPERATION: "retrieval"}
    return _Described(f"retrieve {retriever.name}", attributes)


def _retrieved(span: Span, chunks: list[Chunk]) -> None:
    def documents() -> Attributes:
        shown = [{"id": chunk.id, "score": chunk.score, "content": chunk.text} for chunk in chunks]
        return {names.DOCUMENTS: _encode(shown).decode()}

    span.set({names.RESULTS: len(chunks)})
    span.set_content(documents)


def _search(index: IndexDef, query: str, options: SearchOptions, *_: object) -> _Described:
    return _Described(
        f"search {index.name}",
        {
            names.GEN_AI_OPERATION: "retrieval",
            names.GEN_AI_DATA_SOURCE: index.name,
            names.GEN_AI_TOP_K: options.top_k,
            names.SEARCH_MODE: options.mode,
        },
        lambda: {names.QUERY: query},
    )


def _query(query: VectorQuery) -> _Described:
    """Describe a query of chunks, by an embedding or by words."""
    how = "words" if query.embedding is None else "vectors"
    return _Described(f"query {how}", {names.GEN_AI_DATA_SOURCE: query.index})


def _embed(embedder: Embedder, texts: Sequence[str], kind: str) -> _Described:
    name = embedder.name
    provider, _, model = name.partition("/")
    return _Described(
        f"embeddings {name}",
        {
            names.GEN_AI_OPERATION: "embeddings",
            names.GEN_AI_PROVIDER: provider,
            names.GEN_AI_MODEL: model or name,
            names.GEN_AI_DIMENSIONS: embedder.dimensions,
            names.TEXTS: len(texts),
        },
        lambda: {names.QUERY: texts[0]} if kind == "query" else {},
    )


def _traced(
    describe: Callable[..., _Described],
    finish: Callable[[Span, Any], None] | None = None,
    *,
    is_root: bool = True,
) -> _AnyCall:
    """Return a call inside of a span; without a trace around it only if it may begin one."""

    async def call(tracer: Tracer, inner: _AnyCall, *arguments: Any, **options: Any) -> Any:
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


_READ = _traced(_read, is_root=False)
_QUERY = _traced(
    _query, lambda span, hits: span.set({names.RESULTS: len(hits.hits)}), is_root=False
)
_ASSEMBLE = _traced(_assemble, _assembled)
_SEARCH = _traced(_search, lambda span, result: _retrieved(span, result.chunks))
_STEPS: Mapping[Step, _AnyCall] = {
    "event": _handle,
    "refresh": _refresh,
    "feature": _call,
    "online.get": _READ,
    "online.get_packed": _READ,
    "online.get_with_waiting": _READ,
    "vectors.nearest": _QUERY,
    "vectors.matching": _QUERY,
    "records.append": _traced(_record, is_root=False),
    "records.append_outcome": _append_outcome,
    "retrieve": _traced(_retrieve, _retrieved),
    "embed": _traced(_embed),
    "fit": _traced(_fit, _fitted),
}


class Tracing(Interceptor):
    """Spans around publishing, committing, calls, assemblies and searches."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self.steps = {step: partial(traced, tracer) for step, traced in _STEPS.items()}

    def publish(self, inner: Publish) -> Publish:
        return partial(_publish, self._tracer, inner)

    def commit(self, inner: Commit) -> Commit:
        return partial(_commit, self._tracer, inner)

    def assemble(self, inner: Assemble) -> Assemble:
        return partial(_ASSEMBLE, self._tracer, inner)

    def search(self, inner: Search) -> Search:
        return partial(_SEARCH, self._tracer, inner)
