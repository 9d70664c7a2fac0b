"""Keys that are limited to entities, contexts, indexes or a tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest

from headwater import (
    Context,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.backends.connect import connect
from headwater.cli.context_export import bundle
from headwater.client.async_client import AsyncClient
from headwater.contexts.recorded import search
from headwater.core.clock import SystemClock
from headwater.errors import CallerLimitError
from headwater.http.app import create_app
from headwater.model.callers import AccessScope, Caller, CallerLimits, set_caller
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, client_of, problem_of
from tests.http.key_files import add_key

DATA: tuple[AccessScope, ...] = ("ingest", "read", "assemble", "records")
SPEND = "/v1/features/spend"


def shop(settings: Settings) -> FeatureStore:
    store = FeatureStore(settings=settings)
    Index(store, "manuals", embedder="lexical")
    Index(store, "letters", embedder="lexical")

    @entity(store)
    class User:
        user_id: str

    @entity(store)
    class Order:
        order_id: str

    @feature(entity=User, trigger="purchase", default=0.0)
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=Order, trigger="shipped", default="waiting")
    async def state(order_id: str, event: ServiceEvent) -> str:
        return "shipped"

    @feature(entity=User)
    async def best(user_id: str) -> float:
        spent = [float(await store.get_feature("spend", each)) for each in ("acme-1", "bell-1")]
        return max(spent)

    @feature(entity=User, ttl="1h")
    async def rank(user_id: str) -> str:
        return f"the best has spent {await store.get_feature('best', user_id)}"

    declare_contexts(store)
    declare_report(store)
    return store


def declare_contexts(store: FeatureStore) -> None:
    @context(store)
    async def greeting(user_id: str) -> str:
        return f"You have spent {await store.get_feature('spend', user_id)}."

    @context(store)
    async def comparison(user_id: str, other: str) -> str:
        return f"{await greeting(user_id)} {await greeting(other)}"

    @context(store)
    async def failing(user_id: str, other: str) -> str:
        raise ValueError(f"no {await comparison(user_id, other)}")

    kept: list[Context] = []

    @context(store)
    async def keeping(user_id: str) -> str:
        kept.append(await greeting(user_id))
        return "kept"

    @context(store)
    async def quoting(user_id: str, other: str) -> list[ContextItem]:
        await keeping(other)
        return [ContextItem(kept[-1].content, source=kept[-1])]

    @context(store)
    async def ranking(user_id: str) -> str:
        return str(await store.get_feature("rank", user_id))

    @context(store)
    async def order(order_id: str) -> str:
        return str(await store.get_feature("state", order_id))

    @retriever(store)
    async def neighbours(name: str) -> list[str]:
        return [str(await store.get_feature("spend", name))]

    @context(store)
    async def nearby(user_id: str, name: str) -> str:
        found = await neighbours(name)
        return found[0].text + str(await store.get_feature("spend", user_id))

    @context(store)
    async def manual(user_id: str, index: str) -> str:
        found = await store.search(index, "parcel", mode="text")
        return f"{len(found)} {await store.get_feature('spend', user_id)}"

    @context(store)
    def literal(text: str) -> str:
        return text


def declare_report(store: FeatureStore) -> None:
    @retriever(store, cache_ttl="1h")
    async def spent_before(name: str) -> list[str]:
        return [str(past.value) for past in await store.get_feature_history("spend", name)]

    @context(store)
    async def report(user_id: str, subject: str, of: str) -> str:
        """Read stored data by the verbs that return neither features nor chunks."""
        read: dict[str, Callable[[], Awaitable[object]]] = {
            "past": lambda: store.get_feature_history("spend", of),
            "cached": lambda: spent_before(of),
            "document": lambda: store.indexes.get_document(of, "bell-doc"),
            "documents": lambda: store.indexes.list_documents(of, prefix="none"),
            "record": lambda: store.get_context_at(of),
            "records": store.list_contexts,
            "events": lambda: store.bus.list(entity_id=of),
            "letters": lambda: store.dead_letters.list(entity_id=of),
        }
        found = await read[subject]()
        return f"{found} {await store.get_feature('spend', user_id)}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keys.toml"


@pytest.fixture
async def store(tmp_path: Path, path: Path) -> AsyncIterator[FeatureStore]:
    settings = Settings().replace(
        api_key=KEY,
        keys_file=str(path),
        home=str(tmp_path / "home"),
    )
    async with shop(settings) as store:
        for index in ("manuals", "letters"):
            await store.index(index, "acme-doc", "Your parcel arrives.")
            await store.index(index, "bell-doc", "Another parcel arrives.")
        yield store


def with_key(store: FeatureStore, *scopes: AccessScope, **limits: Any) -> httpx.AsyncClient:
    """Return a client with a new, limited key."""
    path = Path(store.settings.keys_file)
    return client_of(store, key=add_key(path, "limited", *(scopes or DATA), **limits))


def is_refused(response: httpx.Response, *words: str) -> bool:
    """Return whether a request was refused because of the limits; check the problem."""
    if response.status_code != 403:
        return False
    problem = problem_of(response)
    assert problem["type"].endswith(":limit")
    assert problem["key"] == "limited"
    assert all(word in problem["detail"] for word in words), problem["detail"]
    return True


async def test_a_tenant_reads_only_its_own_entities(store: FeatureStore) -> None:
    async with with_key(store, tenant="acme-") as client:
        assert (await client.get(SPEND, params={"entity_id": "acme-1"})).status_code == 200
        refused = await client.get(SPEND, params={"entity_id": "bell-1"})
        assert is_refused(refused, "'bell-1'", "'acme-'")
        history = SPEND + "/history"
        assert (await client.get(history, params={"entity_id": "acme-1"})).status_code == 200
        assert is_refused(await client.get(history, params={"entity_id": "bell-1"}))
        assert (await client.get("/v1/entities/User/acme-1")).status_code == 200
        assert is_refused(await client.get("/v1/entities/User/bell-1"))
        for ids, is_allowed in [(["acme-1", "acme-2"], True), (["acme-1", "bell-1"], False)]:
            body = {"entity_ids": ids, "features": ["spend"]}
            response = await client.post("/v1/features", json=body)
            assert is_refused(response) is not is_allowed
        # The declaration decides what a computed feature reads, not the caller.
        assert (await client.get("/v1/features/best?entity_id=acme-1")).status_code == 200


async def test_a_key_of_an_entity_reads_no_other_entity(store: FeatureStore) -> None:
    async with with_key(store, entities=frozenset({"User"})) as client:
        assert (await client.get(SPEND, params={"entity_id": "u"})).status_code == 200
        refused = await client.get("/v1/features/state?entity_id=u")
        assert is_refused(refused, "'Order'", "User")


@pytest.mark.parametrize(
    ("name", "params", "is_allowed"),
    [
        ("neighbours", {"name": "acme-2"}, True),
        ("neighbours", {"name": "bell-1"}, False),
        ("spent_before", {"name": "acme-1"}, True),
        ("spent_before", {"name": "bell-1"}, False),
        ("unnamed", {}, False),
        ("manuals", {"query": "parcel"}, True),
        ("letters", {"query": "parcel"}, False),
    ],
)
async def test_a_retriever_is_limited_by_everything_that_it_has_read(
    name: str, params: dict[str, Any], is_allowed: bool, store: FeatureStore
) -> None:
    @retriever(store)
    def unnamed() -> list[str]:
        return ["read from another service"]

    for index in ("manuals", "letters"):

        @retriever(store, name=index, index=index, mode="text")
        def search(query: str) -> list[str]: ...  # type: ignore[empty-body]

    async with with_key(store, tenant="acme-", indexes=frozenset({"manuals"})) as client:
        response = await client.post(f"/v1/retrievers/{name}", json={"params": params})
        assert is_refused(response) is not is_allowed, response.text


async def test_events_are_limited(store: FeatureStore) -> None:
    async with with_key(store, tenant="acme-", entities=frozenset({"User"})) as client:
        for entity_id, event_type, is_allowed in [
            ("acme-1", "purchase", True),
            ("bell-1", "purchase", False),
            ("acme-1", "shipped", False),
            ("acme-1", "unknown", False),
        ]:
            body = {"entity_id": entity_id, "payload": {"amount": 1}}
            response = await client.post(f"/ingest/{event_type}", json=body)
            assert is_refused(response) is not is_allowed, response.text
        batch = [{"event_type": "purchase", "entity_id": each} for each in ("acme-2", "bell-2")]
        assert is_refused(await client.post("/ingest", json=batch))
    assert {logged.event.entity_id for logged in await store.bus.list()} == {"acme-1"}


@pytest.mark.parametrize(
    ("name", "params", "is_allowed"),
    [
        ("greeting", {"user_id": "acme-1"}, True),
        ("greeting", {"user_id": "bell-1"}, False),
        ("comparison", {"user_id": "acme-1", "other": "acme-2"}, True),
        ("comparison", {"user_id": "acme-1", "other": "bell-1"}, False),
        ("nearby", {"user_id": "acme-1", "name": "acme-2"}, True),
        ("nearby", {"user_id": "acme-1", "name": "bell-1"}, False),
        ("manual", {"user_id": "acme-1", "index": "manuals"}, True),
        ("manual", {"user_id": "acme-1", "index": "letters"}, False),
        ("order", {"order_id": "acme-1"}, False),
        ("report", {"user_id": "acme-1", "subject": "past", "of": "acme-2"}, True),
        ("report", {"user_id": "acme-1", "subject": "past", "of": "bell-1"}, False),
        ("report", {"user_id": "acme-1", "subject": "cached", "of": "bell-1"}, False),
        ("report", {"user_id": "acme-1", "subject": "document", "of": "manuals"}, True),
        ("report", {"user_id": "acme-1", "subject": "document", "of": "letters"}, False),
        ("report", {"user_id": "acme-1", "subject": "documents", "of": "manuals"}, True),
        ("report", {"user_id": "acme-1", "subject": "documents", "of": "letters"}, False),
        ("report", {"user_id": "acme-1", "subject": "records", "of": ""}, False),
        ("report", {"user_id": "acme-1", "subject": "events", "of": "bell-1"}, False),
        ("report", {"user_id": "acme-1", "subject": "letters", "of": "bell-1"}, False),
    ],
)
async def test_a_context_is_refused_if_it_reads_something_outside_of_the_limits(
    name: str, params: dict[str, str], store: FeatureStore, *, is_allowed: bool
) -> None:
    limits = {"indexes": frozenset({"manuals"}), "entities": frozenset({"User"})}
    async with with_key(store, tenant="acme-", **limits) as client:
        response = await client.post(f"/v1/contexts/{name}", json={"params": params})
    assert is_refused(response) is not is_allowed
    assert (response.status_code == 200) is is_allowed, response.text
    recorded = [each.name for each in (await store.list_contexts()).contexts]
    assert (name in recorded) is is_allowed
    # Nor those of the contexts inside.
    assert bool(recorded) is is_allowed


async def test_records_of_contexts_inside_are_stored_with_an_allowed_one_and_with_a_failed_one(
    store: FeatureStore,
) -> None:
    async with with_key(store, tenant="acme-") as client:
        params = {"user_id": "acme-1", "other": "acme-2"}
        made = await client.post("/v1/contexts/comparison", json={"params": params})
        assert len(await store.records.inner(made.json()["context_id"])) == 2
        for user, count in (("acme-3", 4), ("bell-1", 4)):
            body = {"params": {"user_id": "acme-1", "other": user}}
            response = await client.post("/v1/contexts/failing", json=body)
            assert response.status_code == 500
            assert len((await store.list_contexts(name="greeting")).contexts) == count


async def test_a_context_made_inside_another_one_may_be_the_source_of_an_item(
    store: FeatureStore,
) -> None:
    async with with_key(store, tenant="acme-") as client:
        for user, status in (("acme-1", 200), ("bell-1", 403)):
            body = {"params": {"user_id": "acme-1", "other": user}}
            response = await client.post("/v1/contexts/quoting", json=body)
            assert response.status_code == status, response.text


@pytest.mark.parametrize("include_content", [True, False])
async def test_a_stored_value_stays_refused_when_its_derivation_is_lost(
    store: FeatureStore, path: Path, *, include_content: bool
) -> None:
    settings = store.settings.replace(record={"include_content": include_content})
    key = add_key(path, "limited", "assemble", tenant="acme-")
    async with shop(settings) as first:
        await first.set_feature("spend", "acme-1", 5.0)
        await first.set_feature("spend", "bell-1", 7.0)
        assert (await first.assemble("ranking", {"user_id": "acme-1"})).meta["recorded"]
    for _ in range(2):
        async with shop(settings) as restarted, client_of(restarted, key=key) as client:
            body = {"params": {"user_id": "acme-1"}}
            assert is_refused(await client.post("/v1/contexts/ranking", json=body))
        backends = await connect(settings, SystemClock())
        await backends.cache.drop("feature/")
        await backends.lifecycle.close()


async def test_a_context_that_reads_a_record_is_refused(store: FeatureStore) -> None:
    hidden = await store.assemble("greeting", {"user_id": "bell-1"})
    params = {"user_id": "acme-1", "subject": "record", "of": hidden.context_id}
    async with with_key(store, tenant="acme-") as client:
        refused = await client.post("/v1/contexts/report", json={"params": params})
        assert is_refused(refused, "recorded contexts")


async def test_pages_do_not_reveal_hidden_records(store: FeatureStore) -> None:
    own = [await store.assemble("greeting", {"user_id": "acme-1"}) for _ in range(2)]
    for _ in range(3):
        await store.assemble("greeting", {"user_id": "bell-1"})
    async with with_key(store, tenant="acme-") as client:
        page = (await client.get("/v1/contexts?limit=1")).json()
        assert page["next_cursor"] == page["contexts"][0]["context_id"] == own[1].context_id
        page = (await client.get(f"/v1/contexts?limit=1&cursor={own[1].context_id}")).json()
        assert page["contexts"][0]["context_id"] == own[0].context_id
        assert page["next_cursor"] is None
        url = "/v1/contexts/by-provenance?entity=User&entity_id=bell-1&limit=1"
        assert (await client.get(url)).json() == {"contexts": [], "next_cursor": None}


async def test_a_limited_key_examines_a_bounded_number_of_records(
    store: FeatureStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_EXAMINED", 2)
    own = await store.assemble("greeting", {"user_id": "acme-1"})
    for _ in range(3):
        await store.assemble("greeting", {"user_id": "bell-1"})
    async with with_key(store, tenant="acme-") as client:
        first = (await client.get("/v1/contexts?limit=1")).json()
        assert first["contexts"] == []
        second = (await client.get(f"/v1/contexts?limit=1&cursor={first['next_cursor']}")).json()
        assert [each["context_id"] for each in second["contexts"]] == [own.context_id]


async def test_the_source_of_functions_is_not_for_limited_keys(store: FeatureStore) -> None:
    full = await client_of(store).get("/v1/declarations/feature/best")
    assert "bell-1" in full.json()["code"]["text"]
    limited = await with_key(store, entities=["User"]).get("/v1/declarations/feature/best")
    assert limited.json()["name"] == "best"
    assert limited.json()["code"] is None


async def test_inner_records_that_a_key_may_not_read_are_left_out_of_a_bundle(
    store: FeatureStore,
) -> None:
    ctx = await store.assemble("comparison", {"user_id": "acme-1", "other": "acme-2"})
    assert ctx.context_id is not None
    key = add_key(Path(store.settings.keys_file), "one", *DATA, contexts=["comparison"])
    transport = httpx.ASGITransport(create_app(store))
    client = AsyncClient("http://test", key=key, settings=Settings(), transport=transport)
    record = await client.get_record(ctx.context_id)
    inner = await client.records.inner(ctx.context_id)
    await client.close()
    assert inner == []
    assert len(await store.records.inner(ctx.context_id)) == 2
    assert bundle(record, inner)


async def test_errors_do_not_suggest_names_to_limited_keys(store: FeatureStore) -> None:
    async with with_key(store, tenant="acme-") as client:
        refused = [
            await client.get("/v1/features/stat?entity_id=acme-1"),
            await client.post("/v1/contexts/orde", json={"params": {}}),
            await client.post("/v1/search/letter", json={"query": "parcel"}),
        ]
        for each in refused:
            assert problem_of(each)["detail"].endswith("; check its spelling")
            assert "nearest" not in each.json()
        event = await client.post("/ingest/shippe", json={"entity_id": "acme-1"})
        assert (event.status_code, "hint" in event.json()) == (202, False)


async def test_a_key_of_a_context_assembles_no_other(store: FeatureStore) -> None:
    async with with_key(store, contexts=frozenset({"greeting"})) as client:
        body = {"params": {"user_id": "u"}}
        assert (await client.post("/v1/contexts/greeting", json=body)).status_code == 200
        other = {"params": {"order_id": "o"}}
        assert is_refused(await client.post("/v1/contexts/order", json=other), "'order'")
        named = {"context": "order", "params": {"order_id": "o"}}
        assert is_refused(await client.post("/api/context/assemble", json=named))


async def test_a_tenant_sees_only_records_of_its_own_entities(store: FeatureStore) -> None:
    own = await store.assemble("greeting", {"user_id": "acme-1"})
    both = await store.assemble("comparison", {"user_id": "acme-1", "other": "acme-2"})
    hidden = [
        await store.assemble("greeting", {"user_id": "bell-1"}),
        await store.assemble("comparison", {"user_id": "acme-1", "other": "bell-1"}),
        await store.assemble("nearby", {"user_id": "acme-1", "name": "acme-1"}),
        await store.assemble("manual", {"user_id": "acme-1", "index": "letters"}),
        await store.assemble("literal", {"text": "about bell"}),
        await store.record_external(name="answer", content="about bell"),
    ]
    async with with_key(store, tenant="acme-") as client:
        listed = (await client.get("/v1/contexts?limit=1000")).json()["contexts"]
        visible = {each["context_id"] for each in listed}
        assert {own.context_id, both.context_id} <= visible
        assert not visible & {each.context_id for each in hidden}
        found = await client.get("/v1/contexts/by-provenance?entity_id=bell-1&entity=User")
        assert found.json()["contexts"] == []
        for each in (own, both):
            assert (await client.get(f"/v1/context/{each.context_id}")).status_code == 200
            assert (await client.get(f"/v1/record/{each.record_hash}")).status_code == 200
        for each in hidden:
            for page in (f"/v1/context/{each.context_id}", f"/v1/record/{each.record_hash}"):
                response = await client.get(page)
                assert problem_of(response)["type"].endswith(":unknown-record")
            assert (await client.get(f"/context/{each.context_id}/explain")).status_code == 404
        # The beginning of an id would show that other ids begin with it.
        assert (await client.get(f"/v1/context/{own.context_id[:9]}")).status_code == 404


async def test_a_tenant_adds_and_reads_outcomes_only_of_its_own_contexts(
    store: FeatureStore,
) -> None:
    own = await store.assemble("greeting", {"user_id": "acme-1"})
    other = await store.assemble("greeting", {"user_id": "bell-1"})
    score = {"score": "helpful", "value": 4}
    foreign = await other.add_outcome(answer="The parcel of bell.", source="a", source_id="1")
    async with with_key(store, "outcomes", "records", tenant="acme-") as client:
        added = await client.post(f"/v1/context/{own.context_id}/outcomes", json=score)
        assert (added.status_code, added.json()["actor"]) == (201, "limited")
        listed = (await client.get(f"/v1/context/{own.context_id}/outcomes")).json()["outcomes"]
        assert listed == [added.json()]
        hidden = f"/v1/context/{other.context_id}/outcomes"
        assert (await client.post(hidden, json=score)).status_code == 404
        assert (await client.get(hidden)).status_code == 404
        assert (await client.get(f"/v1/outcomes/{foreign.outcome_id}")).status_code == 404
        for taken in ({"outcome_id": foreign.outcome_id}, {"source": "a", "source_id": "1"}):
            refused = await client.post(
                f"/v1/context/{own.context_id}/outcomes", json=score | taken
            )
            assert refused.status_code == 422
            assert "bell" not in refused.text
        path = f"/v1/outcomes/{added.json()['outcome_id']}/redact"
        body = {"pointers": ["/actor"], "reason": "asked"}
        assert (await client.post(path, json=body)).status_code == 403
    assert await store.records.outcomes(other.context_id) == [foreign]


async def test_adding_outcomes_needs_their_scope(store: FeatureStore, path: Path) -> None:
    ctx = await store.assemble("literal", {"text": "Hi"})
    route, body = f"/v1/context/{ctx.context_id}/outcomes", {"correction": "Hello"}
    async with client_of(store, key=add_key(path, "writer", "outcomes")) as client:
        assert (await client.post(route, json=body)).status_code == 201
        assert (await client.get(route)).status_code == 403
    async with client_of(store, key=add_key(path, "reader", "records")) as client:
        assert (await client.post(route, json=body)).status_code == 403
        assert len((await client.get(route)).json()["outcomes"]) == 1


async def test_a_key_of_a_context_sees_only_its_records(store: FeatureStore) -> None:
    own = await store.assemble("greeting", {"user_id": "u"})
    other = await store.assemble("literal", {"text": "hello"})
    async with with_key(store, contexts=frozenset({"greeting"})) as client:
        (listed,) = (await client.get("/v1/contexts")).json()["contexts"]
        assert listed["context_id"] == own.context_id
        assert (await client.get(f"/v1/context/{own.context_id}")).status_code == 200
        assert (await client.get(f"/v1/context/{other.context_id}")).status_code == 404


@pytest.mark.parametrize("tenant", [None, "acme-"])
async def test_indexes_are_limited(tenant: str | None, store: FeatureStore) -> None:
    search = {"query": "parcel", "mode": "text"}
    async with with_key(store, tenant=tenant, indexes=frozenset({"manuals"})) as client:
        assert (await client.post("/v1/search/manuals", json=search)).status_code == 200
        assert is_refused(await client.post("/v1/search/letters", json=search), "'letters'")
        assert (await client.get("/v1/index/manuals/bell-doc")).status_code == 200
        assert is_refused(await client.get("/v1/index/letters/acme-doc"))
        assert (await client.post("/v1/indexes/manuals/list", json={})).status_code == 200
        assert is_refused(await client.post("/v1/indexes/letters/list", json={}), "'letters'")
        (listed,) = (await client.get("/v1/indexes")).json()["indexes"]
        assert listed["name"] == "manuals"
        body = {"text": "New."}
        own = await client.put("/v1/index/manuals/acme-doc", json=body)
        assert own.status_code == 200
        shared = await client.put("/v1/index/manuals/bell-doc", json=body)
        assert is_refused(shared) is (tenant is not None)
        assert is_refused(await client.delete("/v1/index/letters/acme-doc"))


async def test_a_tenant_searches_no_index_that_its_key_does_not_name(store: FeatureStore) -> None:
    async with with_key(store, tenant="acme-") as client:
        response = await client.post("/v1/search/manuals", json={"query": "parcel"})
        assert is_refused(response, "other tenants")
        assert (await client.get("/v1/indexes")).json()["indexes"] == []


async def test_a_route_that_does_not_apply_limits_refuses_limited_keys(store: FeatureStore) -> None:
    scopes = [scope for scope in get_args(AccessScope) if scope != "admin"]
    silent = [
        route
        for route in create_app(store).typed_routes
        if route.scope in scopes and not route.applies_limits
    ]
    assert "/metrics" in {route.path for route in silent}
    async with with_key(store, *scopes, contexts=frozenset({"greeting"})) as client:
        for route in silent:
            response = await client.request(route.method, route.path)
            assert is_refused(response, "this route"), route.path


async def test_a_tenant_loads_its_own_documents_in_bulk(store: FeatureStore) -> None:
    path, own = "/v1/indexes/manuals/documents", {"id": "acme-1", "text": "Ours."}
    async with with_key(store, tenant="acme-", indexes=frozenset({"manuals"})) as client:
        assert (await client.post(path, json={"documents": [own]})).status_code == 200
        both = {"documents": [{**own, "text": "New."}, {"id": "bell-1", "text": "Theirs."}]}
        assert is_refused(await client.post(path, json=both))
        assert is_refused(await client.post(path.replace("manuals", "letters"), json=both))
    stored = await store.indexes.get_document("manuals", "acme-1")
    assert stored is not None
    assert stored.text == "Ours."


async def test_limits_hold_below_http(store: FeatureStore) -> None:
    limits = CallerLimits(tenant="acme-", contexts=frozenset({"greeting"}))
    set_caller(Caller("limited", frozenset(DATA), limits))
    try:
        assert await store.get_feature("spend", "acme-1") == 0.0
        for call in (
            lambda: store.get_feature("spend", "bell-1"),
            lambda: store.get_features(["spend"], ["bell-1"]),
            lambda: store.set_feature("spend", "bell-1", 1.0),
            lambda: store.publish("purchase", "bell-1"),
            lambda: store.search("manuals", "parcel"),
            lambda: store.assemble("order", {"order_id": "acme-1"}),
            lambda: store.get_historical_features([], ["spend"]),
        ):
            with pytest.raises(CallerLimitError):
                await call()
    finally:
        set_caller(None)


async def test_keys_of_the_settings_have_no_limits(store: FeatureStore) -> None:
    async with client_of(store) as client:
        for entity_id in ("acme-1", "bell-1"):
            assert (await client.get(SPEND, params={"entity_id": entity_id})).status_code == 200


def names_in(listing: dict[str, Any]) -> dict[str, set[str]]:
    """Return the names of each kind of declaration, and the ids of the nodes."""
    nodes = {node["id"] for node in listing.pop("graph")["nodes"]}
    return {kind: {each["name"] for each in found} for kind, found in listing.items()} | {
        "nodes": nodes
    }


async def test_a_key_lists_the_declarations_that_its_limits_allow(store: FeatureStore) -> None:
    limits = {"entities": frozenset({"Order"}), "contexts": frozenset({"order"})}
    async with with_key(store, **limits, tenant="acme-") as client:
        seen = names_in((await client.get("/api/store")).json())
    assert seen == {
        "entities": {"Order"},
        "events": {"shipped"},
        "features": {"state"},
        "indexes": set(),
        "retrievers": set(),
        "contexts": {"order"},
        "nodes": {"event:shipped", "feature:state", "context:order"},
    }


@pytest.mark.parametrize(
    ("scope", "kinds", "nodes"),
    [
        ("assemble", {"entities", "contexts"}, {"context"}),
        ("records", {"entities", "contexts"}, {"context"}),
        ("ingest", {"entities", "events", "indexes"}, {"event", "index"}),
        ("metrics", set(), set()),
        (
            "read",
            {"entities", "events", "features", "indexes", "retrievers", "contexts"},
            {"event", "feature", "index", "retriever", "context"},
        ),
    ],
)
async def test_a_key_lists_the_declarations_that_its_scope_shows(
    store: FeatureStore, scope: AccessScope, kinds: set[str], nodes: set[str]
) -> None:
    async with with_key(store, scope) as client:
        seen = names_in((await client.get("/api/store")).json())
    shown = {node.partition(":")[0] for node in seen.pop("nodes")}
    assert ({kind for kind, names in seen.items() if names}, shown) == (kinds, nodes)
