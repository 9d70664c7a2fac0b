"""The verbs of the client give the results of the store."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from headwater import Feature, FeatureStore, Overrides, ServiceEvent, create_app
from headwater.client import AsyncClient, Client
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    ConfigError,
    EventConflictError,
    EventError,
    InvalidInputError,
    UnexpectedResponseError,
)
from headwater.model.contexts import Mode
from headwater.settings.schema import Settings
from tests.client.conftest import KEY, URL, Address, MakeClient


async def spend(client: AsyncClient, store: FeatureStore, *amounts: float) -> None:
    await client.bus.publish_many(
        [ServiceEvent("purchase", "ada", {"amount": amount}) for amount in amounts]
    )
    await store.drain()


async def test_a_published_event_changes_the_values_that_are_read(
    client: AsyncClient, store: FeatureStore
) -> None:
    event = await client.publish("purchase", "ada", {"amount": 5.0})
    assert event.entity_id == "ada"
    await store.drain()
    assert await client.get_feature("total_spend", "ada") == 5.0
    assert await client.get_feature("total_spend", "bob") is None
    both = await client.get_features(["total_spend"], ["ada", "bob"])
    assert both == await store.get_features(["total_spend"], ["ada", "bob"])
    (row,) = await client.get_feature_values(["total_spend"], ["ada"])
    (stored,) = await store.get_feature_values(["total_spend"], ["ada"])
    assert (row["total_spend"].as_of, row["total_spend"].source) == (
        stored["total_spend"].as_of,
        "online",
    )
    history = await client.get_feature_history("total_spend", "ada", limit=10)
    assert history == await store.get_feature_history("total_spend", "ada", limit=10)


async def test_a_value_is_in_its_annotated_type_if_the_feature_is_given_by_its_handle(
    client: AsyncClient, store: FeatureStore
) -> None:
    await client.publish("moved", "ada", {"city": "Oslo"})
    await store.drain()
    assert await client.get_feature("address", "ada") == {"city": "Oslo"}
    declared: Feature[Address] = Feature(store, runtime_of(store).registry.feature("address"))
    assert await client.get_feature(declared, "ada") == Address("Oslo")
    rows = await client.get_features([declared], ["ada", "bob"])
    assert rows == {"ada": {"address": Address("Oslo")}, "bob": {"address": None}}
    (past,) = await client.get_feature_history(declared, "ada")
    assert past.value == Address("Oslo")


async def test_the_trace_context_of_an_event_is_sent_with_it(
    client: AsyncClient, store: FeatureStore
) -> None:
    traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await client.bus.publish(ServiceEvent("purchase", "ada", traceparent=traceparent))
    (logged,) = await store.bus.list()
    assert logged.event.traceparent == traceparent


async def test_many_values_are_read_in_several_requests(
    client: AsyncClient, store: FeatureStore
) -> None:
    await spend(client, store, 1.0)
    ids = [f"u{number}" for number in range(6_000)] + ["ada"]
    rows = await client.get_feature_values(["total_spend"], ids)
    assert len(rows) == len(ids)
    assert rows[-1]["total_spend"].value == 1.0


async def test_an_event_without_a_timestamp_gets_the_time_of_the_server(
    client: AsyncClient, store: FeatureStore
) -> None:
    before = datetime.now(UTC)
    event = await client.publish("purchase", 7, {"amount": 1.0})
    assert before <= event.timestamp <= datetime.now(UTC)
    assert event.entity_id == "7"
    given = before - timedelta(hours=1)
    kept = await client.publish("purchase", "ada", {"amount": 1.0}, timestamp=given)
    assert kept.timestamp == given
    assert {each.event.timestamp for each in await store.bus.list()} == {event.timestamp, given}


async def test_a_batch_larger_than_a_body_is_sent_in_parts(
    client: AsyncClient, store: FeatureStore
) -> None:
    events = [ServiceEvent("purchase", "ada", {"note": "x" * 60_000}) for _ in range(20)]
    results = await client.bus.publish_many(events)
    assert [each.event_id for each in results] == [each.event_id for each in events]
    assert not any(each.duplicate for each in results)
    assert all(each.duplicate for each in await client.bus.publish_many(events))


async def test_errors_name_the_place_of_an_event_in_the_whole_batch(client: AsyncClient) -> None:
    large = [ServiceEvent("purchase", "ada", {"note": "x" * 60_000}) for _ in range(20)]
    future = datetime.now(UTC) + timedelta(days=400)
    with pytest.raises(EventError, match="future") as invalid:
        await client.bus.publish_many([*large, ServiceEvent("purchase", "b", {}, future)])
    assert invalid.value.index == 20
    other = ServiceEvent("purchase", "ada", {"note": "other"}, event_id=large[3].event_id)
    with pytest.raises(EventConflictError) as conflicting:
        await client.bus.publish_many([*large[:15], other])
    assert [each.index for each in conflicting.value.conflicts] == [15]


async def test_a_context_is_assembled_listed_explained_and_verified(
    client: AsyncClient, store: FeatureStore
) -> None:
    await spend(client, store, 1.0)
    context = await client.assemble("support", {"user_id": "ada"}, Overrides(max_tokens=50))
    assert context.content == "spent 1.0"
    assert context.lineage.max_tokens == 50
    past = await client.get_context_at(context.context_id)
    assert past == await store.get_context_at(context.context_id)
    assert await client.list_contexts() == await store.list_contexts()
    found = await client.records.find(feature="total_spend", entity_id="ada")
    assert found == await store.records.find(feature="total_spend", entity_id="ada")
    counted = await client.records.histogram(buckets=24, name="support")
    assert counted == await store.records.histogram(buckets=24, name="support")
    assert sum(each.contexts for each in counted.buckets) == 1
    trace = await client.records.explain(context.context_id)
    assert trace == await store.records.explain(context.context_id)
    causes = await client.records.causes(context.context_id)
    assert causes == await store.records.causes(context.context_id)
    record = await client.get_record(context.record_hash)
    assert record == await store.get_record(context.record_hash)
    assert (await client.records.verify(context.context_id, expect=context.record_hash)).ok
    assert not (await client.records.verify(context.context_id, expect="sha256:0")).ok
    assert not (await client.records.verify(context.context_id, signed=True)).ok
    added = await context.add_outcome(answer="It is on its way.", model="gpt-4o")
    assert await client.records.sealed_outcomes(context.context_id) == (
        await store.records.sealed_outcomes(context.context_id)
    )
    (checked,) = (await client.records.verify(context.context_id)).outcomes
    assert (checked.outcome_id, checked.of("link").ok) == (added.outcome_id, True)
    assert await client.get_record(context.context_id) == record
    assert await client.records.inner(context.context_id) == []


@pytest.mark.parametrize("mode", ["show", "reassemble", "as_of", "live"])
async def test_a_context_is_replayed_on_the_server(
    client: AsyncClient, store: FeatureStore, mode: Mode
) -> None:
    context = await client.assemble("support", {"user_id": "ada"})
    replayed = await client.replay(context.context_id, mode)
    assert replayed.content == context.content
    assert replayed.fidelity == (await store.replay(context.context_id, mode)).fidelity
    assert len((await client.list_contexts()).contexts) == 1


async def test_a_text_of_elsewhere_is_recorded(client: AsyncClient) -> None:
    recorded = await client.record_external(
        name="answer", content="Hello", inputs={"user": "ada"}, interaction_ref={"ticket": 7}
    )
    past = await client.get_context_at(recorded.context_id)
    assert (past.content, past.inputs) == ("Hello", {"user": "ada"})
    assert past.interaction_ref == {"ticket": 7}
    assert (await client.records.verify(recorded.context_id, expect=recorded.record_hash)).ok


async def test_contexts_are_compared_from_their_downloaded_records(
    client: AsyncClient, store: FeatureStore
) -> None:
    one = await client.assemble("support", {"user_id": "ada"})
    await spend(client, store, 1.0)
    two = await client.assemble("support", {"user_id": "ada"})
    compared = await client.records.diff(one.context_id, two.context_id)
    assert compared == await store.records.diff(one.context_id, two.context_id)


async def test_options_of_one_call_reach_the_context(client: AsyncClient) -> None:
    chosen = Overrides(
        freshness_sla=timedelta(milliseconds=1500), interaction_ref={"ticket": 7}, max_tokens=None
    )
    context = await client.assemble("support", {"user_id": "ada"}, chosen)
    assert context.freshness_sla_ms == 1500
    assert context.interaction_ref == {"ticket": 7}
    assert context.lineage.max_tokens is None


async def test_lists_are_followed_page_by_page(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.client.contexts.LARGEST_PAGE", 2)
    made = [(await client.assemble("support", {"user_id": "ada"})).context_id for _ in range(5)]
    assert [each.context_id async for each in client.iter_contexts()] == made[::-1]
    found = [each.context_id async for each in client.records.iter(entity_id="ada")]
    assert found == made[::-1]
    assert [each async for each in client.iter_contexts(name="strict")] == []


async def test_documents_are_indexed_searched_read_and_removed(
    client: AsyncClient, store: FeatureStore
) -> None:
    await client.index("docs", "parcels/1", "Parcels arrive within 3 days.", {"lang": "en"})
    (chunk,) = await client.search("docs", "When do parcels arrive?", filters={"lang": "en"})
    (same,) = await store.search("docs", "When do parcels arrive?", filters={"lang": "en"})
    assert chunk == same
    document = await client.indexes.get_document("docs", "parcels/1")
    assert document == await store.indexes.get_document("docs", "parcels/1")
    assert await client.indexes.list() == await store.indexes.list()
    await client.unindex("docs", "parcels/1")
    assert await client.indexes.get_document("docs", "parcels/1") is None
    past = await client.search("docs", "When do parcels arrive?", as_of=chunk.indexed_at)
    assert [each.text for each in past] == [chunk.text]


async def test_a_large_document_has_a_status_until_a_worker_has_embedded_it(
    client: AsyncClient, store: FeatureStore
) -> None:
    paragraphs = [f"Paragraph {number} of parcels. " * 60 for number in range(80)]
    await client.index("docs", "handbook", "\n\n".join(paragraphs))
    document = await client.indexes.get_document("docs", "handbook")
    assert document is not None
    assert document.status == "indexing"
    engine = await runtime_of(store).open()
    await engine.reindexer.maintain(engine.registry.index("docs"))
    document = await client.indexes.get_document("docs", "handbook")
    assert document is not None
    assert document.status == "ready"
    with pytest.raises(InvalidInputError, match="wait cannot be sent to a server"):
        await client.index("docs", "handbook", "Parcels arrive.", wait=True)


async def test_declarations_graph_and_health_are_those_of_the_server(
    client: AsyncClient, store: FeatureStore
) -> None:
    declared = await client.declarations()
    assert [each.name for each in declared.features] == ["total_spend", "address"]
    assert await client.graph() == store.graph()
    assert await client.admin.is_alive()
    assert (await client.admin.readiness()).status == "ready"
    assert all(part.ok for part in await client.admin.health())


async def test_a_server_below_a_path_is_called_there(
    connect: MakeClient, store: FeatureStore
) -> None:
    outer = Starlette(routes=[Mount("/shop/headwater", create_app(store))])
    client = connect(url=f"{URL}/shop/headwater/", transport=httpx.ASGITransport(outer))
    await client.index("docs", "a/b c", "Parcels arrive within 3 days.")
    assert await client.indexes.get_document("docs", "a/b c") is not None
    context = await client.assemble("support", {"user_id": "ada"})
    assert (await client.records.verify(context.context_id)).ok


def test_the_blocking_client_has_the_same_results(store: FeatureStore) -> None:
    transport = httpx.ASGITransport(create_app(store))
    with Client(URL, key=KEY, settings=Settings(), transport=transport) as client:
        event = client.publish("purchase", "ada", {"amount": 2.0})
        assert client.bus.publish(event).duplicate
        context = client.assemble("support", {"user_id": "ada"})
        assert [each.context_id for each in client.iter_contexts()] == [context.context_id]
        assert [each.name for each in client.records.iter(entity_id="ada")] == ["support"]
        assert client.records.verify(context.context_id).ok
        assert client.admin.is_alive()
        assert repr(client) == "<Client http://localhost>"


async def test_the_blocking_client_is_refused_where_an_event_loop_runs() -> None:
    client = Client(URL, settings=Settings())
    with pytest.raises(InvalidInputError, match=r"Client blocks.*use AsyncClient instead"):
        client.get_feature("total_spend", "ada")


def test_the_server_and_the_key_come_from_the_settings() -> None:
    settings = Settings().replace(client={"url": "http://localhost:7/", "key": "a secret key"})
    client = AsyncClient(settings=settings)
    assert client.url == "http://localhost:7"
    assert "a secret key" not in f"{client!r} {client.bus!r} {vars(client)!r}"


async def test_the_key_of_the_settings_is_sent_to_their_server_only() -> None:
    sent: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"features": {}})

    settings = Settings().replace(client={"url": URL, "key": "a secret key"})
    for url in (None, URL, "http://other.example"):
        transport = httpx.MockTransport(answer)
        async with AsyncClient(url, settings=settings, transport=transport) as client:
            with suppress(UnexpectedResponseError):
                await client.declarations()
    assert sent == ["Bearer a secret key", "Bearer a secret key", None]


async def test_credentials_in_the_url_are_sent_and_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "httpx")
    sent: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.headers.get("authorization"))
        return httpx.Response(200, json={"status": "ok"})

    transport = httpx.MockTransport(answer)
    url = "http://me:hunter2@localhost"
    async with AsyncClient(url, settings=Settings(), transport=transport) as client:
        await client.admin.is_alive()
    assert sent == ["Basic bWU6aHVudGVyMg=="]
    assert "HTTP Request: GET http://localhost/healthz" in caplog.text
    assert "hunter2" not in caplog.text


@pytest.mark.parametrize(
    "url", ["localhost:8000", "ftp://localhost", "http://", "http://[::1", "http://:hunter2"]
)
def test_an_invalid_url_is_refused_with_the_remedy(url: str) -> None:
    with pytest.raises(ConfigError, match="is not the URL of a server") as refused:
        AsyncClient(url)
    assert "hunter2" not in str(refused.value)


def test_a_client_without_a_url_names_the_setting() -> None:
    with pytest.raises(ConfigError, match="HEADWATER_CLIENT_URL"):
        AsyncClient(settings=Settings())


def test_a_password_in_the_url_is_never_shown() -> None:
    client = AsyncClient("http://me:hunter2@localhost:1/api/")
    assert "hunter2" not in f"{client!r} {client.url}"
    assert client.url == "http://me:***@localhost:1/api"
