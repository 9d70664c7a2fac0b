"""Indexes over HTTP: index, search, read and remove documents, and list indexes."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from jsonschema_rs import is_valid

from headwater import Chunk, ContextItem, FeatureStore, Index, retriever
from headwater.declarations.runtime import runtime_of
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, Serving, client_of, damage, problem_of

REFUNDS = "A refund is paid within a week, to the card that was charged."
DELIVERY = "A parcel takes two days."


def unreachable(texts: list[str]) -> list[list[float]]:
    raise ConnectionError("the provider at 10.0.0.7 does not answer")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    settings = Settings().replace(api_key=KEY, home=str(tmp_path))
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical")
        Index(store, "broken", embedder=unreachable, dimensions=3)

        @retriever(store, index="notes", top_k=2, mode="hybrid")
        def search_notes(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

        yield store


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(store) as client:
        yield client


async def put(client: httpx.AsyncClient, document: str, text: str, **metadata: Any) -> Any:
    path = f"/v1/index/docs/{quote(document, safe='')}"
    response = await client.put(path, json={"text": text, "metadata": metadata})
    assert response.status_code == 200, response.text
    return response.json()


async def search(client: httpx.AsyncClient, query: str, **options: Any) -> Any:
    response = await client.post("/v1/search/docs", json={"query": query, **options})
    assert response.status_code == 200, response.text
    return response.json()


async def test_a_document_is_found_as_soon_as_it_is_indexed(client: httpx.AsyncClient) -> None:
    indexed = await put(client, "refunds", REFUNDS, lang="en")
    assert (indexed["index"], indexed["document"], indexed["version"]) == ("docs", "refunds", 1)
    await put(client, "delivery", DELIVERY)
    found = await search(client, "refund", top_k=1)
    assert found["index"] == "docs"
    (chunk,) = found["chunks"]
    assert chunk["id"].startswith("docs/refunds#")
    assert (chunk["document"], chunk["position"], chunk["version"]) == ("refunds", 0, 1)
    assert (chunk["text"], chunk["metadata"]) == (REFUNDS, {"lang": "en"})
    assert chunk["content_hash"].startswith("sha256:")
    assert chunk["indexed_at"] == indexed["indexed_at"]
    assert 0 < chunk["score"] <= 1


async def test_a_document_can_be_replaced_read_and_removed(client: httpx.AsyncClient) -> None:
    await put(client, "refunds", REFUNDS, lang="en")
    before = (await search(client, "refund"))["version"]
    changed = await put(client, "refunds", "A refund is paid today.")
    assert changed["version"] == 2
    found = await search(client, "refund")
    assert [chunk["text"] for chunk in found["chunks"]] == ["A refund is paid today."]
    assert found["version"] != before
    read = (await client.get("/v1/index/docs/refunds")).json()
    assert read == changed | {"text": "A refund is paid today."}
    for _ in range(2):
        removed = await client.delete("/v1/index/docs/refunds")
        assert (removed.status_code, removed.content) == (204, b"")
    assert (await search(client, "refund"))["chunks"] == []
    missing = await client.get("/v1/index/docs/refunds")
    assert missing.status_code == 404
    assert problem_of(missing)["type"].endswith(":unknown-document")


async def test_the_ids_to_retain_may_begin_with_a_byte_order_mark(
    client: httpx.AsyncClient,
) -> None:
    await put(client, "refunds", REFUNDS)
    await put(client, "delivery", DELIVERY)
    response = await client.post(
        "/v1/indexes/docs/retain",
        content='\ufeff"refunds"\n'.encode(),
        headers={"Content-Type": "application/x-ndjson"},
    )
    assert '"removed":1' in response.text
    assert (await client.get("/v1/index/docs/refunds")).status_code == 200


async def test_indexing_the_same_again_changes_nothing(client: httpx.AsyncClient) -> None:
    first = await put(client, "refunds", REFUNDS)
    version = (await search(client, "refund"))["version"]
    assert await put(client, "refunds", REFUNDS) == first
    assert (await search(client, "refund"))["version"] == version


@pytest.mark.parametrize(
    "document",
    [
        *("guides/intro.md", "a b", "50%", "é", "a+b", "?q=1", "a%2Fb", "#7", "a..b", "1"),
        "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    ],
)
async def test_any_document_id_can_be_sent_percent_encoded(
    client: httpx.AsyncClient, store: FeatureStore, document: str
) -> None:
    assert (await put(client, document, REFUNDS))["document"] == document
    (found,) = await store.search("docs", "refund")
    assert found.document == document
    path = f"/v1/index/docs/{quote(document, safe='')}"
    assert (await client.get(path)).json()["document"] == document
    assert (await client.delete(path)).status_code == 204
    assert await store.search("docs", "refund") == []


async def test_an_encoded_slash_stays_in_its_segment_on_a_real_server(
    serving: Serving, store: FeatureStore
) -> None:
    async with serving(store) as client:
        response = await client.put("/v1/index/docs/a%2Fb", json={"text": REFUNDS})
        assert response.json()["document"] == "a/b"
        assert (await client.delete("/v1/index/docs/a%2Fb")).status_code == 204
        assert (await client.put("/v1/index/docs/a/b", json={"text": ""})).status_code == 404


async def test_a_search_has_the_options_of_the_store(client: httpx.AsyncClient) -> None:
    for number in range(4):
        await put(client, f"d{number}", f"A refund of kind {number}.", number=number)
    numbers = [chunk["metadata"]["number"] for chunk in (await search(client, "refund"))["chunks"]]
    assert sorted(numbers) == [0, 1, 2, 3]
    filters = {"$or": [{"number": {"$gte": 3}}, {"number": 0}]}
    found = await search(client, "refund", filters=filters, mode="text")
    assert sorted(chunk["document"] for chunk in found["chunks"]) == ["d0", "d3"]
    found = await search(client, "kind 2", mode="hybrid", diversity=0.5, top_k=2)
    assert len(found["chunks"]) == 2
    assert (await search(client, "refund", min_score=0.999))["chunks"] == []


async def test_a_search_of_the_past_finds_the_old_text(client: httpx.AsyncClient) -> None:
    indexed = await put(client, "refunds", REFUNDS)
    await put(client, "refunds", "A refund is paid today.")
    version = (await search(client, "refund"))["version"]
    await put(client, "refunds", "A refund is paid tomorrow.")
    found = await search(client, "refund", as_of=indexed["indexed_at"])
    assert [chunk["text"] for chunk in found["chunks"]] == [REFUNDS]
    found = await search(client, "refund", as_of=version)
    assert [chunk["text"] for chunk in found["chunks"]] == ["A refund is paid today."]
    earlier = datetime.fromisoformat(indexed["indexed_at"]) - timedelta(seconds=1)
    assert (await search(client, "refund", as_of=earlier.isoformat()))["chunks"] == []


async def test_every_index_is_listed_with_its_version_and_size(client: httpx.AsyncClient) -> None:
    await put(client, "refunds", REFUNDS)
    version = (await search(client, "refund"))["version"]
    listed = {each["name"]: each for each in (await client.get("/v1/indexes")).json()["indexes"]}
    assert listed.keys() == {"docs", "broken", "notes"}
    docs = listed["docs"]
    assert (docs["version"], docs["documents"], docs["chunks"]) == (version, 1, 1)
    assert docs["spec"]["embedder"] == "lexical/1"
    assert (docs["spec"]["chunk_tokens"], docs["spec"]["overlap"]) == (400, 40)
    assert (listed["notes"]["version"], listed["notes"]["documents"]) == (None, 0)


async def test_the_declarations_include_indexes_and_the_index_of_a_retriever(
    client: httpx.AsyncClient,
) -> None:
    listed = (await client.get("/api/store")).json()
    assert [index["name"] for index in listed["indexes"]] == ["broken", "docs", "notes"]
    assert [index["embedder"] for index in listed["indexes"]] == [
        "unreachable",
        "lexical",
        None,
    ]
    (declared,) = listed["retrievers"]
    assert (declared["name"], declared["index"], declared["mode"]) == (
        "search_notes",
        "notes",
        "hybrid",
    )


@pytest.mark.both_environments
async def test_documents_are_indexed_searched_and_removed(settings: Settings) -> None:
    settings = settings.replace(api_key=KEY)
    async with FeatureStore(settings=settings) as store, client_of(store) as client:
        Index(store, "docs", embedder="lexical")
        assert (await search(client, "refund"))["version"] is None
        await put(client, "guides/refunds", REFUNDS, lang="en")
        await put(client, "delivery", DELIVERY, lang="en")
        changed = await put(client, "guides/refunds", "A refund is paid today.", lang="en")
        assert changed["version"] == 2
        found = await search(client, "refund", filters={"lang": "en"}, top_k=1)
        assert [chunk["text"] for chunk in found["chunks"]] == ["A refund is paid today."]
        assert (await client.delete("/v1/index/docs/delivery")).status_code == 204
        (listed,) = (await client.get("/v1/indexes")).json()["indexes"]
        assert listed["documents"] == 1
        assert listed["version"] > found["version"]


UNKNOWN = [
    ("POST", "/v1/search/doc", {"query": "refund"}),
    ("PUT", "/v1/index/doc/refunds", {"text": REFUNDS}),
    ("GET", "/v1/index/doc/refunds", None),
    ("DELETE", "/v1/index/doc/refunds", None),
]


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN)
async def test_an_unknown_index_is_not_found_and_the_nearest_is_named(
    client: httpx.AsyncClient, method: str, path: str, body: Any
) -> None:
    response = await client.request(method, path, json=body)
    assert response.status_code == 404
    problem = problem_of(response)
    assert problem["type"].endswith(":unknown-index")
    assert (problem["name"], problem["nearest"]) == ("doc", "docs")


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN)
async def test_every_route_of_an_index_needs_a_key(
    store: FeatureStore, method: str, path: str, body: Any
) -> None:
    async with client_of(store, key=None) as client:
        assert (await client.request(method, path, json=body)).status_code == 401


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "query"),
        ({"query": 7}, "query"),
        ({"query": "refund", "top_k": 0}, "top_k"),
        ({"query": "refund", "top_k": 1_001}, "top_k"),
        ({"query": "refund", "mode": "magic"}, "choose one of hybrid, text, vector"),
        ({"query": "refund", "diversity": 2}, "diversity"),
        ({"query": "refund", "topk": 3}, "top_k"),
        ({"query": "refund", "as_of": "2026-01-01T00:00:00"}, "as_of"),
        ({"query": "refund", "filters": {"year": {"$gt": None}}}, "year"),
        ({"query": "refund", "filters": {"year": {"$gtee": 1}}}, "$gte"),
        ({"query": "refund", "filters": {"tag": ["a", "b"]}}, "$in"),
        ({"query": "refund", "filters": []}, "filters"),
        ({"query": ""}, "query"),
        ({"query": "refund", "min_score": 7}, "min_score"),
    ],
)
async def test_an_invalid_search_is_refused_and_the_field_is_named(
    client: httpx.AsyncClient, body: Any, named: str
) -> None:
    response = await client.post("/v1/search/docs", json=body)
    assert response.status_code == 422, response.text
    problem = problem_of(response)
    assert problem["type"].endswith(":invalid-input")
    assert named in response.text


async def test_filters_may_not_be_nested_without_a_limit(client: httpx.AsyncClient) -> None:
    filters: dict[str, Any] = {"a": 1}
    for _ in range(100):
        filters = {"$not": filters}
    response = await client.post("/v1/search/docs", json={"query": "refund", "filters": filters})
    assert response.status_code == 422
    assert "nested" in problem_of(response)["detail"]


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": 7},
        {"text": REFUNDS, "metadata": [1]},
        {"text": REFUNDS, "meta": {}},
        {"text": "a\ud800b"},
    ],
)
async def test_an_invalid_document_is_refused(client: httpx.AsyncClient, body: Any) -> None:
    response = await client.put("/v1/index/docs/refunds", content=json.dumps(body))
    assert response.status_code in (400, 422), response.text
    problem_of(response)


@pytest.mark.parametrize("metadata", [{"a": {"": 1}}, {"$a": 1}, {"a": 2**63}, {"a": "x" * 99_000}])
async def test_a_load_with_an_invalid_document_is_refused_before_one_is_indexed(
    client: httpx.AsyncClient, metadata: Any
) -> None:
    documents = [{"id": "a", "text": REFUNDS}, {"id": "b", "text": DELIVERY, "metadata": metadata}]
    response = await client.post("/v1/indexes/docs/documents", json={"documents": documents})
    assert response.status_code == 422, response.text
    assert "'b'" in problem_of(response)["detail"]
    assert (await client.get("/v1/index/docs/a")).status_code == 404


async def test_metadata_has_integers_of_64_bits_and_any_float(client: httpx.AsyncClient) -> None:
    numbers = [2**63 - 1, -(2**63), 1e19, -1e300, 0.1]
    assert (await put(client, "refunds", REFUNDS, numbers=numbers))["metadata"] == {
        "numbers": numbers
    }
    described = (await client.get("/openapi.json")).json()
    schema = {"$ref": "#/components/schemas/MetadataValue", "components": described["components"]}
    assert is_valid(schema, numbers)


async def test_a_document_too_large_is_refused(tmp_path: Path) -> None:
    given = {"api_key": KEY, "home": str(tmp_path), "http": {"max_body_bytes": 1_000}}
    async with FeatureStore(settings=Settings().replace(**given)) as store:
        Index(store, "docs", embedder="lexical")
        async with client_of(store) as client:
            response = await client.put("/v1/index/docs/refunds", json={"text": "x" * 1_000})
            assert response.status_code == 413
            assert problem_of(response)["limit"] == 1_000


@pytest.fixture
async def bounded(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    """Yield a store in which a document of three chunks is large, and one of twenty too large."""
    limits = {"background_chunks": 2, "max_request_chunks": 20}
    settings = Settings().replace(api_key=KEY, home=str(tmp_path), indexes=limits)
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical", chunk_tokens=16, overlap=0)
        yield store


def paragraphs(count: int) -> str:
    return "\n\n".join(f"Paragraph {n} says that refunds take a week." for n in range(count))


async def test_a_large_document_is_accepted_and_its_status_says_when_it_is_found(
    bounded: FeatureStore,
) -> None:
    path, body = "/v1/index/docs/refunds", {"text": paragraphs(9)}
    async with client_of(bounded) as client:
        accepted = await client.put(path, json=body)
        assert (accepted.status_code, accepted.json()["status"]) == (202, "indexing")
        assert (await client.get(path)).json()["status"] == "indexing"
        assert (await search(client, "refunds"))["chunks"] == []
        (index,) = (await client.get("/v1/indexes")).json()["indexes"]
        assert (index["documents"], index["outdated"]) == (0, 1)
        engine = await runtime_of(bounded).open()
        await engine.reindexer.maintain(engine.registry.index("docs"))
        assert (await client.get(path)).json()["status"] == "ready"
        repeated = await client.put(path, json=body)
        assert (repeated.status_code, repeated.json()["status"]) == (200, "ready")
        assert (await search(client, "refunds", top_k=1))["chunks"][0]["document"] == "refunds"


async def test_a_request_with_too_many_chunks_is_refused_with_the_limit(
    bounded: FeatureStore,
) -> None:
    document = {"id": "refunds", "text": paragraphs(60)}
    async with client_of(bounded) as client:
        one = await client.put("/v1/index/docs/refunds", json={"text": document["text"]})
        several = [document | {"id": name, "text": paragraphs(15)} for name in "abcd"]
        many = await client.post("/v1/indexes/docs/documents", json={"documents": several})
        for response in (one, many):
            assert response.status_code == 413
            problem = problem_of(response)
            assert problem["type"].endswith(":too-many-chunks")
            assert problem["limit"] == 20
            assert "raise indexes.max_request_chunks" in problem["detail"]
        (index,) = (await client.get("/v1/indexes")).json()["indexes"]
        assert (index["documents"], index["outdated"]) == (0, 0)


async def test_a_provider_that_does_not_answer_is_unavailable_and_nothing_is_indexed(
    client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    response = await client.put("/v1/index/broken/refunds", json={"text": REFUNDS})
    assert response.status_code == 503, response.text
    assert response.headers["retry-after"] == "1"
    problem = problem_of(response)
    assert problem["type"].endswith(":embedding-failed")
    assert "10.0.0.7" not in response.text
    assert "10.0.0.7" in capsys.readouterr().err
    missing = await client.get("/v1/index/broken/refunds")
    assert missing.status_code == 404


async def test_an_embedder_that_is_not_configured_affects_its_index_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = Settings().replace(api_key=KEY, home=str(tmp_path))
    async with FeatureStore(settings=settings) as store:
        Index(store, "azure", embedder="azure")
        Index(store, "openai", embedder="openai")
        Index(store, "docs", embedder="lexical")
        async with client_of(store) as client:
            response = await client.put("/v1/index/openai/refunds", json={"text": REFUNDS})
            assert (response.status_code, problem_of(response)["embedder"]) == (
                503,
                "openai/text-embedding-3-small",
            )
            assert "HEADWATER_EMBEDDINGS_API_KEY or OPENAI_API_KEY" in response.json()["detail"]
            assert "embeddings.provider" not in response.text
            assert "OPENAI_API_KEY" in capsys.readouterr().err
            listed = (await client.get("/v1/indexes")).json()["indexes"]
            specs = {each["name"]: each["declared_spec"] for each in listed}
            assert specs["azure"] is None
            assert specs["docs"]["embedder"] == "lexical/1"


async def test_a_failed_rerank_names_the_index(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(query: str, chunks: list[Chunk]) -> list[Chunk]:
        raise RuntimeError("at 10.0.0.7")

    async with FeatureStore(settings=Settings().replace(api_key=KEY, home=str(tmp_path))) as store:
        Index(store, "docs", embedder="lexical")

        @store.retriever(index="docs", rerank=failing)
        def search(query: str) -> list[Chunk]: ...  # type: ignore[empty-body]

        @store.context(max_tokens=100)
        async def answer(question: str) -> list[ContextItem]:
            return [ContextItem(chunk.text) for chunk in await search(question)]

        await store.index("docs", "refunds", REFUNDS)
        async with client_of(store) as client:
            body = {"params": {"question": "refunds"}}
            response = await client.post("/v1/contexts/answer", json=body)
            assert response.status_code == 500
            assert problem_of(response)["index"] == "docs"
            assert "10.0.0.7" not in response.text
            assert "10.0.0.7" in capsys.readouterr().err


async def test_an_index_of_another_embedder_is_refused_with_the_remedy(tmp_path: Path) -> None:
    settings = Settings().replace(api_key=KEY, home=str(tmp_path))
    async with FeatureStore(settings=settings) as before:
        Index(before, "docs", embedder=lambda texts: [[1.0, 2.0] for _ in texts], dimensions=2)
        await before.index("docs", "refunds", REFUNDS)
    async with FeatureStore(settings=settings) as store:
        Index(store, "docs", embedder="lexical")
        async with client_of(store) as client:
            response = await client.post("/v1/search/docs", json={"query": "refund"})
    assert response.status_code == 409
    problem = problem_of(response)
    assert problem["type"].endswith(":index-mismatch")
    assert (problem["index"], problem["declared"]) == ("docs", "lexical/1 (1024 dimensions)")
    assert "headwater index reindex docs" in problem["detail"]


async def test_a_store_that_cannot_be_used_is_unavailable(
    client: httpx.AsyncClient, store: FeatureStore
) -> None:
    await put(client, "refunds", REFUNDS)
    await damage(store)
    for method, path, body in UNKNOWN:
        response = await client.request(method, path.replace("/doc", "/docs"), json=body)
        assert response.status_code == 503, response.text
        assert response.headers["retry-after"] == "1"
        assert problem_of(response)["type"].endswith(":backend")


def test_the_routes_are_described(store: FeatureStore) -> None:
    routes = {(route.method, route.path) for route in create_app(store).typed_routes}
    assert {
        ("POST", "/v1/search/{index}"),
        ("PUT", "/v1/index/{index}/{document}"),
        ("GET", "/v1/index/{index}/{document}"),
        ("DELETE", "/v1/index/{index}/{document}"),
        ("GET", "/v1/indexes"),
    } <= routes
