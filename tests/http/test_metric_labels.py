"""Metrics: the ones of retrieval, assembly, records and pools, and labels that are bounded."""

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock

CHOSEN = "chosen-by-a-caller"
Samples = dict[tuple[str, tuple[str, ...]], float]


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """Yield a store with every kind of declaration."""
    opened = FeatureStore(settings=settings, clock=clock)

    @entity(opened)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", max_retries=0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=User, ttl=timedelta(hours=1))
    async def profile(user_id: str) -> str:
        return f"profile of {user_id}"

    Index(opened, "labelled", embedder="lexical")

    @retriever(opened, index="labelled", cache_ttl=timedelta(hours=1))
    def labelled_find(question: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    @context(opened, max_tokens=50)
    async def labelled_support(user_id: str, question: str) -> list[str | ContextItem]:
        await opened.get_feature("profile", user_id)
        found = await labelled_find(question)
        return [*(chunk.text for chunk in found), ContextItem("word " * 40, required=False)]

    yield opened
    await opened.close()


def _client(store: FeatureStore) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(store))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


async def _scrape(http: httpx.AsyncClient) -> Samples:
    text = (await http.get("/metrics")).text
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_retrieval_assembly_and_records_are_counted(store: FeatureStore) -> None:
    await store.index("labelled", "returns", "Returns are free within thirty days. " * 3)
    async with store, _client(store) as http:
        before = await _scrape(http)
        for _ in range(2):
            await store.assemble("labelled_support", {"user_id": "ada", "question": "returns"})
        await store.search("labelled", "returns")
        await http.get("/readyz")
        after = await _scrape(http)

    def grown(name: str, *labels: str) -> float:
        key = (name, tuple(sorted(labels)))
        return after[key] - before.get(key, 0.0)

    assert grown("headwater_retrievals_total", "labelled_find", "done") == 2
    assert grown("headwater_retrieval_seconds_count", "labelled_find") == 2
    assert grown("headwater_retrievals_total", "search:labelled", "done") == 1
    assert grown("headwater_retriever_cache_total", "labelled_find", "miss") == 1
    assert grown("headwater_retriever_cache_total", "labelled_find", "hit") == 1
    assert grown("headwater_feature_cache_total", "profile", "miss") == 1
    assert grown("headwater_feature_cache_total", "profile", "hit") == 1
    assert grown("headwater_context_assembly_seconds_count", "labelled_support") == 2
    assert grown("headwater_context_tokens_count", "labelled_support") == 2
    assert grown("headwater_context_items_dropped_total", "labelled_support") > 0
    assert grown("headwater_records_total", "stored") == 2
    assert grown("headwater_records_pending") == 0
    assert after["headwater_threads", ("waiting",)] == 0
    assert [value for (name, _), value in after.items() if name == "headwater_ready"]


async def test_pools_and_the_outbox_are_measured_on_servers(
    store: FeatureStore, settings: Settings
) -> None:
    await store.publish("purchase", "ada", {"amount": 5})
    await store.drain()
    async with store, _client(store) as http:
        await store.get_feature_history("spend", "ada")
        samples = await _scrape(http)
    if settings.postgres.url:
        assert samples["headwater_postgres_connections", ("idle",)] >= 1
        assert samples["headwater_postgres_waiting", ()] == 0
        assert samples["headwater_outbox_seconds", ()] >= 0


async def test_no_text_of_a_caller_becomes_a_label(store: FeatureStore) -> None:
    events = [
        {"event_type": event_type, "entity_id": CHOSEN, "event_id": f"{CHOSEN}-{event_type}"}
        for event_type in ("purchase", CHOSEN)
    ]
    async with store, _client(store) as http:
        await http.post("/ingest", json=events)
        await store.drain()
        await http.request(CHOSEN.upper(), f"/{CHOSEN}", headers={"x-request-id": CHOSEN})
        await http.get(f"/features/{CHOSEN}", params={"entity_id": CHOSEN, CHOSEN: CHOSEN})
        await http.get(f"/features/profile?entity_id={CHOSEN}")
        await http.get(f"/v1/contexts/{CHOSEN}")
        external = await store.record_external(name=CHOSEN, content=CHOSEN, model=CHOSEN)
        await store.replay(external.context_id)
        await store.assemble("labelled_support", {"user_id": CHOSEN, "question": CHOSEN})
        await store.search("labelled", CHOSEN, filters={CHOSEN: CHOSEN})
        text = (await http.get("/metrics")).text
    assert "(external)" in text
    assert CHOSEN.lower() not in text.lower()
