"""Traces of events: publish, process, each feature and commit are one."""

import asyncio
from datetime import timedelta

import httpx
import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from headwater import FeatureStore, ServiceEvent, entity, feature
from headwater.errors import EventError
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.telemetry.conftest import Spans, is_child

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = int("4bf92f3577b34da6a3ce929d0e0e4736", 16)


def declare(store: FeatureStore) -> list[int]:
    """Declare an async, a sync and a failing feature; return the traces their functions saw."""
    seen: list[int] = []

    def note() -> None:
        seen.append(trace.get_current_span().get_span_context().trace_id)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase")
    async def spend(user_id: str, event: ServiceEvent) -> float:
        await asyncio.sleep(0)
        note()
        return float(event.payload["amount"])

    @feature(entity=User, trigger="purchase")
    def purchases(user_id: str, event: ServiceEvent) -> int:
        note()
        return 1

    @feature(entity=User, trigger="refund", max_retries=1)
    async def refunds(user_id: str, event: ServiceEvent) -> int:
        raise ValueError(f"secret of {user_id}")

    return seen


@pytest.mark.both_environments
async def test_publish_process_features_and_commit_are_one_trace(
    store: FeatureStore, spans: Spans
) -> None:
    seen = declare(store)
    await store.publish("purchase", "ursula", {"amount": 5})
    await store.drain()
    publish, process = spans.one("publish"), spans.one("process purchase")
    assert is_child(process, publish)
    for name in ("feature spend", "feature purchases", "commit"):
        assert is_child(spans.one(name), process)
    assert (publish.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert publish.context is not None
    assert set(seen) == {publish.context.trace_id}
    assert process.attributes is not None
    assert process.attributes["headwater.features.updated"] == ("spend", "purchases")
    (logged,) = await store.bus.list()
    assert isinstance(logged.event.traceparent, str)
    assert logged.event.traceparent.split("-")[2] == f"{publish.context.span_id:016x}"


async def test_events_of_many_entities_keep_their_traces_apart(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    for number in range(20):
        await store.publish("purchase", f"user-{number}", {"amount": number})
    await store.drain()
    assert len(spans.traces()) == 20
    by_id = {span.context.span_id: span for span in spans.all() if span.context}
    for name in ("feature spend", "feature purchases", "commit"):
        assert len(spans.named(name)) == 20
        for span in spans.named(name):
            assert span.parent is not None
            assert by_id[span.parent.span_id].name == "process purchase"


async def test_events_are_published_inside_of_the_span_of_the_application(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    with trace.get_tracer("app").start_as_current_span("checkout"):
        await store.publish("purchase", "ursula", {"amount": 5})
    await store.drain()
    assert is_child(spans.one("publish"), spans.one("checkout"))
    assert len(spans.traces()) == 1


async def test_an_event_keeps_another_trace_that_its_publisher_gave(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    mine = ServiceEvent("purchase", "ursula", {"amount": 1}, traceparent=CALLER)
    with trace.get_tracer("app").start_as_current_span("import"):
        await store.bus.publish_many([mine, ServiceEvent("purchase", "bob", {"amount": 2})])
    await store.drain()
    (link,) = spans.one("publish").links
    assert link.context.trace_id == TRACE
    processed = {span.context.trace_id for span in spans.named("process purchase") if span.context}
    imported = spans.one("import").context
    assert imported is not None
    assert processed == {TRACE, imported.trace_id}


async def test_a_dead_letter_is_an_error_without_the_message_of_its_exception(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    await store.publish("refund", "ursula", {"card": "visa-x"})
    await store.drain()
    assert len(spans.named("feature refunds")) == 2
    for name in ("feature refunds", "process refund", "commit"):
        assert all(span.status.status_code is StatusCode.ERROR for span in spans.named(name))
    process = spans.one("process refund")
    assert process.status.description == "dead letter"
    assert process.attributes is not None
    assert process.attributes["headwater.dead_letters"] == ("refunds",)
    assert not any(secret in spans.texts() for secret in ("secret", "ursula", "visa-x"))


async def test_a_redriven_event_continues_the_trace_of_its_publish(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    await store.publish("refund", "ursula", {})
    await store.drain()
    (letter,) = await store.dead_letters.list()
    await store.dead_letters.redrive(letter.id)
    await store.drain()
    assert len(spans.named("process refund")) == 2
    assert len(spans.traces()) == 1


async def test_content_is_exported_if_it_is_asked_for_and_never_in_privacy_mode(
    settings: Settings, clock: ManualClock, spans: Spans
) -> None:
    asked = {"enabled": True, "provider": "global", "content": True}
    for private in (True, False):
        chosen = settings.replace(telemetry=asked, record={"include_content": not private})
        store = FeatureStore(settings=chosen, clock=clock)
        declare(store)
        await store.publish("purchase", "ursula", {"amount": 4711.25})
        await store.drain()
        await store.close()
        assert ("4711.25" not in spans.texts()) is private
        assert ("ursula" not in spans.texts()) is private


@pytest.mark.both_environments
async def test_the_portions_of_a_refresh_are_one_trace(
    store: FeatureStore, spans: Spans, clock: ManualClock
) -> None:
    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="seen")
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=User, refresh=timedelta(hours=1), materialize=True)
    async def score(user_id: str) -> int:
        return 1

    for number in range(3):
        await store.publish("seen", f"user-{number}", {})
    await store.drain()
    clock.advance(timedelta(hours=2))
    await store.drain()
    (span,) = [s for s in spans.named("feature score")[:1]]
    refreshes = spans.named("refresh score")
    assert any(is_child(span, refresh) for refresh in refreshes)


async def test_a_backfill_is_a_trace(store: FeatureStore, spans: Spans) -> None:
    declare(store)
    await store.publish("purchase", "ursula", {"amount": 5})
    await store.drain()
    await store.backfills.run("spend")
    backfill = spans.one("backfill")
    assert is_child(spans.one("replay"), backfill)
    assert backfill.attributes is not None
    assert backfill.attributes["headwater.feature.name"] == "spend"


async def test_the_blocking_store_publishes_inside_of_the_span_of_the_application(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)

    def publish() -> None:
        with trace.get_tracer("app").start_as_current_span("checkout"):
            store.sync.publish("purchase", "ursula", {"amount": 5})

    await asyncio.to_thread(publish)
    assert is_child(spans.one("publish"), spans.one("checkout"))


async def test_without_tracing_the_header_of_a_request_still_travels_in_the_event(
    settings: Settings, clock: ManualClock
) -> None:
    store = FeatureStore(settings=settings, clock=clock)
    declare(store)
    async with store, _client(store) as http:
        await http.post("/ingest/purchase", json={"entity_id": "ursula"}, headers=_headers(CALLER))
        await http.post("/ingest/purchase", json={"entity_id": "bob"}, headers=_headers("00-bad"))
        body = [{"event_type": "purchase", "entity_id": "eve", "traceparent": CALLER}]
        await http.post("/ingest", json=body)
        refused = await http.post("/ingest/purchase", json={"entity_id": "x", "traceparent": "no"})
        logged = {each.event.entity_id: each.event.traceparent for each in await store.bus.list()}
    assert refused.status_code == 422
    assert (logged["ursula"], logged["eve"]) == (CALLER, CALLER)
    assert not logged["bob"]


async def test_a_request_continues_the_trace_of_its_caller(
    store: FeatureStore, spans: Spans
) -> None:
    declare(store)
    async with store, _client(store) as http:
        await http.post(
            "/ingest/purchase",
            json={"entity_id": "ursula", "payload": {"amount": 1}},
            headers=_headers(CALLER),
        )
        await http.get(
            "/features/unknown", params={"entity_id": "ursula"}, headers=_headers(CALLER)
        )
        await http.get("/healthz")
        await store.drain()
    assert spans.traces() == {TRACE}
    server = spans.one("POST /ingest/{event_type}")
    assert server.kind is SpanKind.SERVER
    assert server.attributes is not None
    assert server.attributes["http.response.status_code"] == 202
    assert is_child(spans.one("publish"), server)
    assert is_child(spans.one("process purchase"), spans.one("publish"))


def test_an_invalid_trace_context_of_an_event_is_refused() -> None:
    with pytest.raises(EventError, match="W3C trace context"):
        ServiceEvent("purchase", "ursula", traceparent="00-0-0-0")


def _client(store: FeatureStore) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(store))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


def _headers(traceparent: str) -> dict[str, str]:
    return {"traceparent": traceparent}
