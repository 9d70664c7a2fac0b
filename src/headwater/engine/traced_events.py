"""Spans of events: publish, process, each feature's function, and commit are one trace.

The trace context travels in the event. Handlers run as coroutines that move between tasks, so
nothing here is the current span while one waits, except inside of the function of a user.

Each function calls another one inside of a span, which it gets as ``inner``; see `tracing`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from headwater.core.codec import encode_custom
from headwater.core.deadlines import Slot
from headwater.core.tracing import Attributes, Span, Tracer, ending, is_sampled, trace_id
from headwater.declarations.features import FeatureDef
from headwater.declarations.interceptors import Commit, Publish
from headwater.features.batch_state import BatchState
from headwater.features.call_scope import CallScope
from headwater.features.refresh import Refreshed
from headwater.model.events import PublishResult
from headwater.model.values import ServiceEvent
from headwater.ports import Delivery, Handled, Lease, Outcome, Subjects, no_subjects
from headwater.telemetry import attributes as names

_SYSTEM = "headwater"
_MOST_LINKS = 32
_encode = msgspec.json.Encoder(enc_hook=encode_custom).encode


async def publish(
    tracer: Tracer,
    inner: Publish,
    events: Sequence[ServiceEvent],
    *,
    dedup_window: timedelta | None,
    subjects: Subjects = no_subjects,
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
    with ending(span):
        if only is not None:
            span.set_content(lambda: _content(only))
        context = span.traceparent
        sent = [
            event if event.traceparent in others else replace(event, traceparent=context)
            for event in events
        ]
        return await inner(sent, dedup_window=dedup_window, subjects=subjects)


async def handle(
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
    with ending(span):
        span.set_content(lambda: _content(event))
        inside = replace(delivery, event=replace(event, traceparent=span.traceparent))
        handled = await inner(state, inside, features, slot)
        span.set({names.FEATURES_UPDATED: handled.updated, names.RETRIES: handled.retries})
        _fail_if_dead(span, handled)
        return handled


async def call(
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
    with ending(span):
        span.set_content(lambda: {names.ENTITY_ID: entity_id})
        return await inner(slot, scope, _inside(feature, span), entity_id, *rest)


async def refresh(
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


async def commit(tracer: Tracer, inner: Commit, outcome: Outcome) -> None:
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
        names.MESSAGING_SYSTEM: _SYSTEM,
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
