"""Contexts over HTTP: assemble, list, read, explain, and verify by their records."""

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.core.json_values import plain
from headwater.errors import ImmutableRecordError
from headwater.http.routing.problems import problem_response
from headwater.records.document import RecordDocument, load
from headwater.records.verify import verify_document, verify_record
from headwater.settings.schema import Settings
from headwater.store.listings import declared_context
from tests.http.conftest import KEY, client_of, damage, problem_of

ASSEMBLE = "/v1/contexts/support"
ASKED = {"params": {"user_id": "u1", "question": "Where is it?"}}

MakeDesk = Callable[..., FeatureStore]


def desk(settings: Settings) -> FeatureStore:
    """A help desk: a store with features, a retriever and contexts."""
    store = FeatureStore(settings=settings)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase", default=0.0)
    async def total_spend(user_id: str, event: ServiceEvent) -> float:
        return float(event.payload["amount"])

    @feature(entity=User, template="has spent {total_spend}")
    def blurb(user_id: str) -> str:
        return ""

    @retriever(store, top_k=2, cache_ttl="5m")
    async def search_docs(query: str, boost: float = float("nan")) -> list[dict[str, Any]]:
        """Finds pages of the manual."""
        return [
            {"text": f"{query} {n}", "id": f"d{n}", "score": 1 / n, "document": "manual"}
            for n in (1, 2, 3)
        ]

    @context(store, max_tokens=60, freshness_sla="5m", model="gpt-4o", version="2")
    async def support(user_id: str, question: str, since: datetime | None = None) -> list[Any]:
        """What a support agent knows."""
        docs = await search_docs(question)
        return [
            ContextItem("You are a support agent.", priority=100, required=True),
            ContextItem.template("The customer {blurb}.", priority=80),
            *(ContextItem(doc.text, priority=50, source=doc) for doc in docs),
            ContextItem("word " * 100, priority=1),
        ]

    @context(store, freshness_sla="1s", freshness_strict=True)
    async def strict(user_id: str) -> str:
        return str(await store.get_feature("total_spend", user_id))

    @context(store, max_tokens=60, allow_looser="max_tokens")
    def lenient(user_id: str) -> str:
        return user_id

    @context(store)
    def broken(user_id: str) -> str:
        raise ValueError("the password is hunter2")

    declare_slow(store)
    return store


def declare_slow(store: FeatureStore) -> None:
    @retriever(store, name="hangs", timeout="50ms")
    async def search_for_ever() -> list[str]:
        await asyncio.sleep(60)
        return []

    @context(store, timeout="20ms")
    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    @context(store)
    async def waiting() -> str:
        return str(await search_for_ever())


@pytest.fixture
async def make_desk(tmp_path: Path) -> AsyncIterator[MakeDesk]:
    """Return a function that makes the store of the desk; all stores are closed at the end."""
    stores: list[FeatureStore] = []

    def make(**settings: Any) -> FeatureStore:
        given = {"api_key": KEY, "home": str(tmp_path / "home"), **settings}
        stores.append(desk(Settings().replace(**given)))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.fixture
def store(make_desk: MakeDesk) -> FeatureStore:
    return make_desk()


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(store) as client:
        yield client


async def assembled(client: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    response = await client.post(ASSEMBLE, json=ASKED | body)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def test_a_context_is_assembled_with_everything_that_went_into_it(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await store.publish("purchase", "u1", {"amount": 12.5})
    await store.drain()
    answer = await assembled(client, interaction_ref={"call_id": "c1", "turn_index": 3})
    assert list(answer) == [
        "content",
        "context_id",
        "record_hash",
        "content_hash",
        "name",
        "created_at",
        "tokens",
        "cost_nano_usd",
        "freshness_status",
        "freshness_violations",
        "freshness_sla_ms",
        "interaction_ref",
        "model",
        "max_output",
        "request",
        "lineage",
        "meta",
        "cost",
    ]
    assert answer["content"].startswith("You are a support agent.\n\nThe customer has spent 12.5.")
    assert answer["content_hash"] == sha256(answer["content"].encode())
    assert answer["freshness_status"] == "guaranteed"
    assert answer["freshness_sla_ms"] == 300_000
    assert answer["interaction_ref"] == {"call_id": "c1", "turn_index": 3}
    assert 0 < answer["tokens"] <= 60
    assert answer["cost"] == answer["cost_nano_usd"] == answer["lineage"]["cost_nano_usd"] > 0
    assert answer["meta"]["recorded"] is True
    assert [read["feature"] for read in answer["lineage"]["features"]] == ["blurb"]
    (search,) = answer["lineage"]["retrievers"]
    assert (search["count"], search["cache_hit"]) == (2, False)
    # JSON has no NaN, so it stands in the tag that records use.
    assert search["arguments"] == {"query": "Where is it?", "boost": {"$float": "NaN"}}
    decisions = [item["decision"] for item in answer["lineage"]["items"]]
    assert decisions == ["kept", "kept", "kept", "kept", "dropped"]


async def test_a_reference_is_also_taken_among_the_parameters(client: httpx.AsyncClient) -> None:
    params = {"user_id": "u1", "question": "?", "interaction_ref": {"turn_id": "t1"}}
    answer = await assembled(client, params=params)
    assert answer["interaction_ref"] == {"turn_id": "t1"}
    read = (await client.get(f"/v1/context/{answer['context_id']}")).json()
    assert read["interaction_ref"] == {"turn_id": "t1"}


async def test_a_call_may_tighten_the_budget_and_the_sla(client: httpx.AsyncClient) -> None:
    answer = await assembled(client, max_tokens=8, freshness_sla="1m")
    assert answer["content"] == "You are a support agent."
    assert answer["freshness_sla_ms"] == 60_000


async def test_a_call_that_loosens_a_limit_is_refused(client: httpx.AsyncClient) -> None:
    params = {"user_id": "u1", "question": "?"}
    body = {"params": params, "freshness_sla": None}
    response = await client.post("/v1/contexts/support", json=body)
    told = response.json()
    assert response.status_code == 422
    assert told["type"] == "urn:headwater:problem:looser-override"
    assert told["option"] == "freshness_sla"
    assert "freshness_sla=None is looser than the declared 5m" in told["detail"]


async def test_a_call_may_loosen_the_limits_that_its_context_names(
    client: httpx.AsyncClient,
) -> None:
    body = {"params": {"user_id": "u1"}, "max_tokens": None}
    response = await client.post("/v1/contexts/lenient", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["lineage"]["max_tokens"] is None


async def test_defaults_degrade_freshness_and_are_named(client: httpx.AsyncClient) -> None:
    answer = await assembled(client)
    assert answer["freshness_status"] == "degraded"
    (violation,) = answer["freshness_violations"]
    assert (violation["name"], violation["reason"]) == ("total_spend", "default")
    assert violation["used_by"] == "blurb"
    assert answer["meta"]["freshness_violations"] == answer["freshness_violations"]


async def test_a_strict_context_that_is_not_fresh_is_a_422_with_its_violations(
    client: httpx.AsyncClient,
) -> None:
    response = await client.post("/v1/contexts/strict", json={"params": {"user_id": "u1"}})
    assert response.status_code == 422
    problem = problem_of(response)
    assert problem["type"].endswith(":not-fresh")
    assert problem["context"] == "strict"
    assert problem["violations"] == [
        {
            "kind": "feature",
            "name": "total_spend",
            "entity_id": "u1",
            "age_ms": None,
            "sla_ms": 1000,
            "reason": "default",
            "used_by": None,
        }
    ]
    refused = (await client.get(f"/v1/context/{problem['context_id']}")).json()
    assert (refused["name"], refused["freshness_status"]) == ("strict", "refused")


async def test_required_items_that_do_not_fit_are_a_422(client: httpx.AsyncClient) -> None:
    response = await client.post(ASSEMBLE, json=ASKED | {"max_tokens": 3})
    assert response.status_code == 422
    problem = problem_of(response)
    assert problem["type"].endswith(":token-budget")
    assert (problem["needed"], problem["available"], problem["items"]) == (6, 3, {"0": 6})


async def test_an_unknown_context_is_named_with_the_nearest_match(
    client: httpx.AsyncClient,
) -> None:
    for response in (
        await client.post("/v1/contexts/suport", json=ASKED),
        await client.post("/api/context/assemble", json=ASKED | {"context": "suport"}),
    ):
        assert response.status_code == 404
        problem = problem_of(response)
        assert problem["type"].endswith(":unknown-context")
        assert problem["nearest"] == "support"


@pytest.mark.parametrize(
    ("params", "field", "told"),
    [
        ({"user_id": "u1"}, "params.question", "needs the parameter 'question'"),
        ({"user_id": "u1", "qestion": "?"}, "params.qestion", "did you mean 'question'?"),
        ({"user_id": 1, "question": "?"}, "params.user_id", "Expected `str`, got `int`"),
        (
            {"user_id": "u1", "question": "?", "since": "yesterday"},
            "params.since",
            "Invalid RFC3339",
        ),
    ],
)
async def test_parameters_that_do_not_fit_are_named(
    params: dict[str, Any], field: str, told: str, client: httpx.AsyncClient
) -> None:
    response = await client.post(ASSEMBLE, json={"params": params})
    assert response.status_code == 422
    problem = problem_of(response)
    assert problem["field"] == field
    assert told in problem["detail"]


async def test_parameters_arrive_in_the_annotated_type(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    moment = "2026-01-01T00:00:00Z"
    answer = await assembled(client, params=ASKED["params"] | {"since": moment})
    past = await store.get_context_at(answer["context_id"])
    assert past.inputs["since"] == datetime(2026, 1, 1, tzinfo=UTC)
    read = (await client.get(f"/v1/context/{answer['context_id']}")).json()
    assert read["inputs"]["since"] == moment


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"max_tokens": 0}, 422),
        ({"max_tokens": "many"}, 422),
        ({"freshness_sla": "soon"}, 422),
        ({"interaction_ref": "c1"}, 422),
        ({"interaction_ref": {"$call": 1}}, 422),
        ({"parameters": {}}, 422),
        ({"params": []}, 422),
    ],
)
async def test_a_request_that_does_not_fit_is_refused(
    body: dict[str, Any], status: int, client: httpx.AsyncClient
) -> None:
    response = await client.post(ASSEMBLE, json=ASKED | body)
    assert response.status_code == status
    problem_of(response)


async def test_an_exception_of_the_function_is_a_500_without_details(
    client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    response = await client.post("/v1/contexts/broken", json={"params": {"user_id": "u1"}})
    assert response.status_code == 500
    problem = problem_of(response)
    assert problem["type"].endswith(":context-failed")
    assert problem["context"] == "broken"
    assert "hunter2" not in response.text
    assert "hunter2" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "kind", "function", "seconds"),
    [("slow", "context", "slow", 0.02), ("waiting", "retriever", "hangs", 0.05)],
)
async def test_a_function_that_takes_too_long_is_a_504_that_names_it_and_the_remedy(
    client: httpx.AsyncClient, name: str, kind: str, function: str, seconds: float
) -> None:
    response = await client.post(f"/v1/contexts/{name}", json={})
    assert response.status_code == 504
    problem = problem_of(response)
    assert problem["type"].endswith(f":{kind}-timeout")
    assert (problem[kind], problem["seconds"]) == (function, seconds)
    assert f"{kind} {function!r}" in problem["detail"]
    assert "HEADWATER_CONTEXT_TIMEOUT" in problem["detail"]


async def test_contexts_are_found_by_their_inputs(client: httpx.AsyncClient) -> None:
    one = (await assembled(client))["context_id"]
    other = {"user_id": "u2", "question": "Where is it?"}
    two = (await assembled(client, params=other))["context_id"]

    async def found(**wanted: str) -> list[str]:
        answer = (await client.get("/v1/contexts/by-provenance", params=wanted)).json()
        return [context["context_id"] for context in answer["contexts"]]

    # The context reads blurb, which is made of total_spend.
    assert await found(feature="total_spend") == [two, one]
    assert await found(feature="total_spend", entity_id="u1") == [one]
    assert await found(entity_id="u2") == [two]
    assert await found(entity="User", entity_id="u2") == [two]
    assert await found(entity="Order", entity_id="u2") == []
    assert await found(chunk="d1", entity_id="u1") == [one]
    assert await found(document="manual") == [two, one]
    assert await found(document="manual", index="docs") == []
    assert await found(index="docs") == []
    first = (await client.get("/v1/contexts/by-provenance?chunk=d1&limit=1")).json()
    assert await found(chunk="d1", cursor=first["next_cursor"]) == [one]


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("", "feature, entity_id, chunk, document, index, score"),
        ("entity=User", "give entity_id as well"),
        ("featur=total_spend", "did you mean 'feature'?"),
        ("chunk=d1&limit=0", "limit"),
    ],
)
async def test_a_search_for_nothing_is_refused_with_the_remedy(
    query: str, detail: str, client: httpx.AsyncClient
) -> None:
    response = await client.get(f"/v1/contexts/by-provenance?{query}")
    assert response.status_code == 422
    assert detail in problem_of(response)["detail"]


async def test_contexts_are_listed_page_by_page(client: httpx.AsyncClient) -> None:
    made = [(await assembled(client))["context_id"] for _ in range(5)]
    first = (await client.get("/v1/contexts", params={"limit": 2})).json()
    assert [c["context_id"] for c in first["contexts"]] == [made[4], made[3]]
    late = (await assembled(client))["context_id"]
    rest = (await client.get("/v1/contexts", params={"cursor": first["next_cursor"]})).json()
    assert [c["context_id"] for c in rest["contexts"]] == [made[2], made[1], made[0]]
    assert rest["next_cursor"] is None
    everything = (await client.get("/v1/contexts")).json()["contexts"]
    assert everything[0]["context_id"] == late
    assert everything[0].keys() == {
        "assembly_us",
        "context_id",
        "record_hash",
        "content_hash",
        "name",
        "created_at",
        "freshness_status",
        "caller",
        "model",
        "tokens",
        "max_tokens",
        "cost_nano_usd",
        "items_dropped",
        "is_signed",
        "is_redacted",
    }


async def test_lists_are_bounded_by_time_name_and_status(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await assembled(client)
    await store.record_external(name="null", content="assembled elsewhere")

    async def names(**query: Any) -> list[str]:
        response = await client.get("/v1/contexts", params=query)
        assert response.status_code == 200, response.text
        return [listed["name"] for listed in response.json()["contexts"]]

    now = datetime.now(UTC)
    assert await names(name="support") == ["support"]
    assert await names(name="null") == ["null"]
    assert await names(freshness_status="degraded") == ["support"]
    assert await names(freshness_status="guaranteed") == ["null"]
    assert await names(start=(now - timedelta(hours=1)).isoformat()) == ["null", "support"]
    assert await names(start=(now + timedelta(hours=1)).isoformat()) == []
    assert await names(end=(now - timedelta(hours=1)).isoformat()) == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"start": "2026-01-01T00:00:00"}, "start"),
        ({"start": "2020"}, "start"),
        ({"end": "1e9"}, "end"),
        ({"end": "null"}, "end"),
        ({"limit": "0"}, "limit"),
        ({"limit": "1001"}, "limit"),
        ({"freshness_status": "stale"}, "freshness_status"),
        ({"freshness": "degraded"}, "freshness"),
    ],
)
async def test_a_list_that_cannot_be_made_is_refused(
    query: dict[str, str], field: str, client: httpx.AsyncClient
) -> None:
    response = await client.get("/v1/contexts", params=query)
    assert response.status_code == 422
    assert problem_of(response)["field"] == field


async def test_a_context_is_read_again_by_id_prefix_and_hash(client: httpx.AsyncClient) -> None:
    answer = await assembled(client)
    for ref in (answer["context_id"], answer["context_id"][:23], answer["record_hash"]):
        response = await client.get(f"/v1/context/{ref}")
        assert response.status_code == 200
        read = response.json()
        for name in ("context_id", "record_hash", "content_hash", "content", "tokens"):
            assert read[name] == answer[name]
        assert read["inputs"] == ASKED["params"] | {"since": None}
        assert read["withheld"] == []
    lineage = (await client.get(f"/v1/context/{answer['context_id']}/lineage")).json()
    assert lineage == read["lineage"]
    assert lineage.keys() == answer["lineage"].keys()


async def test_a_context_is_explained_for_as_long_as_its_record_exists(
    make_desk: MakeDesk, client: httpx.AsyncClient
) -> None:
    answer = await assembled(client)
    async with client_of(make_desk()) as later:  # another process, as it were
        response = await later.get(f"/context/{answer['context_id']}/explain")
    assert response.status_code == 200
    trace = response.json()
    assert [item["decision"] for item in trace["items"]][-1] == "dropped"
    assert all(item["why"] for item in trace["items"])
    assert trace["retrievers"][0]["results"][0]["id"] == "d1"
    assert trace["assembly_ms"] > 0


@pytest.mark.parametrize(
    "path",
    [
        "/v1/context/01a1dd3a-0000-7000-8000-000000000000",
        "/v1/context/nothing/lineage",
        "/context/nothing/explain",
        "/v1/record/sha256:" + "0" * 64,
    ],
)
async def test_a_context_that_was_never_recorded_is_a_404_with_a_remedy(
    path: str, client: httpx.AsyncClient
) -> None:
    response = await client.get(path)
    assert response.status_code == 404
    problem = problem_of(response)
    assert problem["type"].endswith(":unknown-record")
    assert "headwater context list" in problem["detail"]


async def test_the_beginning_of_several_ids_is_refused_with_all_of_them(
    client: httpx.AsyncClient,
) -> None:
    made = [(await assembled(client))["context_id"] for _ in range(3)]
    # Ids begin with their time: the first eight characters change once in about a minute.
    beginning = made[1][:8]
    ids = [each for each in made if each.startswith(beginning)]
    assert len(ids) > 1
    response = await client.get(f"/v1/context/{beginning}")
    assert response.status_code == 422
    problem = problem_of(response)
    assert problem["type"].endswith(":ambiguous-ref")
    assert problem["ids"] == ids


async def test_a_record_is_a_document_that_verifies_elsewhere(client: httpx.AsyncClient) -> None:
    answer = await assembled(client)
    by_hash = await client.get(f"/v1/record/{answer['record_hash']}")
    assert by_hash.status_code == 200
    assert by_hash.content == (await client.get(f"/v1/record/{answer['context_id']}")).content
    assert by_hash.content == (await client.get(f"/v1/record/sha256%3A{digest(answer)}")).content
    document = by_hash.json()
    *names, outcomes = [field.name for field in msgspec.structs.fields(RecordDocument)]
    assert list(document) == names
    path = f"/v1/context/{answer['context_id']}/outcomes"
    added = (await client.post(path, json={"answer": "On Friday."})).json()
    answered = await client.get(f"/v1/record/{answer['record_hash']}")
    assert answered.json().pop(outcomes)[0]["outcome_hash"] == added["outcome_hash"]
    assert {name: answered.json()[name] for name in names} == document
    assert answered.headers["etag"] != by_hash.headers["etag"]
    assert verify_document(answered.content).outcomes[0].of("link").ok
    assert verify_record(load(by_hash.content), expect=answer["record_hash"]).ok


async def test_the_core_is_given_as_the_bytes_that_were_hashed(client: httpx.AsyncClient) -> None:
    answer = await assembled(client)
    response = await client.get(f"/v1/record/{answer['record_hash']}", params={"part": "core"})
    assert response.headers["content-type"] == "application/json"
    assert sha256(response.content) == answer["record_hash"]
    document = (await client.get(f"/v1/record/{answer['record_hash']}")).json()
    assert document["core"].encode() == response.content
    refused = await client.get(f"/v1/record/{answer['record_hash']}", params={"part": "shell"})
    assert refused.status_code == 422


async def test_in_privacy_mode_only_the_first_response_has_the_content(
    make_desk: MakeDesk, capsys: pytest.CaptureFixture[str]
) -> None:
    async with client_of(make_desk(record={"include_content": False})) as client:
        answer = await assembled(client)
        assert "Where is it?" in str(answer)
        for path in (
            f"/v1/context/{answer['context_id']}",
            f"/v1/context/{answer['context_id']}/lineage",
            f"/context/{answer['context_id']}/explain",
            f"/v1/record/{answer['record_hash']}",
        ):
            response = await client.get(path)
            assert response.status_code == 200
            assert "Where is it?" not in response.text
            assert '"u1"' not in response.text
        read = (await client.get(f"/v1/context/{answer['context_id']}")).json()
        assert read["content"] is None
        assert "/output/content" in read["withheld"]
    assert "Where is it?" not in capsys.readouterr().err


async def test_declarations_are_listed(client: httpx.AsyncClient) -> None:
    declared = (await client.get("/api/store")).json()
    kinds = ["entities", "events", "features", "indexes", "retrievers", "contexts", "graph"]
    assert list(declared) == kinds
    (user,) = declared["entities"]
    assert (user["name"], user["id_field"], user["id_type"]) == ("User", "user_id", "str")
    features = {feature["name"]: feature for feature in declared["features"]}
    assert features["total_spend"]["triggers"] == ["purchase"]
    assert features["total_spend"]["type"] == "float"
    assert features["blurb"]["needs"] == ["total_spend"]
    assert features["blurb"]["template"] == "has spent {total_spend}"
    search, hangs = declared["retrievers"]
    assert (search["name"], search["top_k"], search["cache_ttl_ms"]) == ("search_docs", 2, 300_000)
    assert (search["timeout_ms"], hangs["timeout_ms"]) == (None, 50)
    contexts = {context["name"]: context for context in declared["contexts"]}
    assert contexts.keys() == {"support", "strict", "lenient", "broken", "slow", "waiting"}
    assert contexts["lenient"]["allow_looser"] == ["max_tokens"]
    assert contexts["slow"]["timeout_ms"] == 20
    support = contexts["support"]
    assert (support["version"], support["model"]) == ("2", "gpt-4o")
    assert (support["max_tokens"], support["freshness_sla_ms"]) == (60, 300_000)
    assert support["description"] == "What a support agent knows."
    assert support["parameters"][1] == {
        "name": "question",
        "type": "str",
        "required": True,
        "default": None,
    }
    assert support["parameters"][2]["type"] == "datetime.datetime | None"
    edges = {tuple(edge.values()) for edge in declared["graph"]["edges"]}
    assert ("feature:total_spend", "feature:blurb", "declaration") in edges
    assert ("retriever:search_docs", "context:support", "code") in edges


def test_defaults_that_json_cannot_say_are_listed_in_tags() -> None:
    @context(FeatureStore())
    def odd(ratio: float = math.nan, names: dict[int, int] = {1: 2}) -> str:  # noqa: B006
        return f"{ratio} {names}"

    listed = declared_context(odd.definition)
    assert [parameter.default for parameter in listed.parameters] == [
        {"$float": "NaN"},
        {"$map": [[1, 2]]},
    ]


async def test_the_routes_of_the_ui_read_and_assemble_as_the_others_do(
    client: httpx.AsyncClient,
) -> None:
    asked = {"entity": "User", "entity_ids": ["u1"], "features": ["total_spend"]}
    read = await client.post("/api/features/get", json=asked)
    assert read.status_code == 200
    assert read.json() == (await client.post("/v1/features", json=asked)).json()
    answer = await client.post("/api/context/assemble", json=ASKED | {"context": "support"})
    assert answer.status_code == 200
    assert answer.json().keys() == (await assembled(client)).keys()
    missing = await client.post("/api/context/assemble", json=ASKED)
    assert missing.status_code == 422
    assert problem_of(missing)["field"] == "context"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ASSEMBLE),
        ("GET", "/v1/contexts"),
        ("GET", "/v1/contexts/by-provenance"),
        ("GET", "/v1/context/x"),
        ("GET", "/v1/context/x/lineage"),
        ("GET", "/context/x/explain"),
        ("GET", "/v1/record/x"),
        ("GET", "/api/store"),
        ("POST", "/api/features/get"),
        ("POST", "/api/context/assemble"),
    ],
)
async def test_every_route_needs_a_key(method: str, path: str, store: FeatureStore) -> None:
    async with client_of(store, key=None) as client:
        assert (await client.request(method, path)).status_code == 401


async def test_a_store_that_cannot_be_used_is_a_503(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    await damage(store)
    for response in (await client.get("/v1/contexts"), await client.post(ASSEMBLE, json=ASKED)):
        assert response.status_code == 503
        assert response.headers["retry-after"]
        problem_of(response)


def test_a_record_that_exists_already_is_a_409() -> None:
    answer = problem_response(ImmutableRecordError("c1", "sha256:a", "sha256:b"))
    problem = msgspec.json.decode(answer.body)
    assert (answer.status_code, problem["type"]) == (409, "urn:headwater:problem:immutable-record")
    assert (problem["stored"], problem["given"]) == ("sha256:a", "sha256:b")


def test_values_without_a_json_form_are_tagged_at_any_depth() -> None:
    chunk = Chunk(text="t", metadata={"limit": float("inf"), "pairs": [{(1, 2): 0.5}]})
    assert msgspec.json.decode(msgspec.json.encode(plain([chunk])))[0]["metadata"] == {
        "limit": {"$float": "Infinity"},
        "pairs": [{"$map": [[{"$tuple": [1, 2]}, {"$float": "0.5"}]]}],
    }


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def digest(answer: dict[str, Any]) -> str:
    return str(answer["record_hash"]).removeprefix("sha256:")


async def test_a_record_names_the_key_that_assembled_it(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    made = await assembled(client)
    (name,) = {each["caller"] for each in (await client.get("/v1/contexts")).json()["contexts"]}
    assert name == made["lineage"]["caller"] == "api_key 1"
    explained = (await client.get(f"/context/{made['context_id']}/explain")).json()
    past = (await client.get(f"/v1/context/{made['context_id']}")).json()
    assert explained["caller"] == past["caller"] == past["lineage"]["caller"] == name
    record = await store.get_record(made["context_id"])
    assert msgspec.json.decode(record.core)["caller"] == name
    assert verify_record(record).ok
    for caller, count in ((name, 1), ("eve", 0)):
        found = (await client.get("/v1/contexts", params={"caller": caller})).json()
        assert len(found["contexts"]) == count
