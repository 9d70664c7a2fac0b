"""Running a retriever by its name over HTTP, without a context."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headwater import FeatureStore, Index, retriever
from headwater.testing import ManualClock
from tests.http.conftest import client_of, problem_of


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    """Declare an index with retrievers and yield a client of their store."""
    Index(store, "help", embedder="lexical")

    @retriever(store, index="help", top_k=2, mode="text", cache_ttl="1h", freshness_sla="10m")
    async def find(question: str, limit: int = 3) -> list[str]: ...  # type: ignore[empty-body]

    @retriever(store)
    async def own(about: str) -> list[str]:
        return [f"about {about}"]

    @retriever(store)
    async def failing() -> list[str]:
        raise ValueError("the password is hunter2")

    @retriever(store, on_error="empty")
    async def forgiving() -> list[str]:
        raise ValueError("no")

    await store.index("help", "parcels", "Parcels take two days.", {"topic": "shipping"})
    async with client_of(store, key=None) as client:
        yield client


async def retrieve(client: httpx.AsyncClient, name: str, **params: Any) -> dict[str, Any]:
    response = await client.post(f"/v1/retrievers/{name}", json={"params": params})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_a_retriever_returns_chunks_with_scores_and_the_version_of_its_index(
    client: httpx.AsyncClient, store: FeatureStore
) -> None:
    found = await retrieve(client, "find", question="parcels")
    (chunk,) = found["chunks"]
    assert (chunk["document"], chunk["metadata"]) == ("parcels", {"topic": "shipping"})
    assert chunk["score"] > 0
    (index,) = await store.indexes.list()
    assert found["index"]["version"] == index.version
    assert (found["index"]["query"], found["index"]["mode"]) == ("parcels", "text")
    assert found["arguments"] == {"question": "parcels", "limit": 3}
    assert (found["is_cached"], found["cached_at"], found["failed"]) == (False, None, False)
    assert (found["sla_ms"], found["is_fresh"], found["age_ms"]) == (600_000, True, 0)
    assert found["latency_ms"] > 0
    assert not (await store.list_contexts()).contexts


async def test_a_repetition_comes_from_the_cache_and_says_how_old_it_is(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    first = await retrieve(client, "find", question="parcels")
    clock.advance("20m")
    again = await retrieve(client, "find", question="parcels")
    assert again["is_cached"]
    assert again["cached_at"] == first["searched_at"]
    assert (again["age_ms"], again["is_fresh"]) == (1_200_000, False)
    assert again["chunks"] == first["chunks"]


async def test_a_function_returns_its_own_chunks(client: httpx.AsyncClient) -> None:
    found = await retrieve(client, "own", about="ada")
    assert [chunk["text"] for chunk in found["chunks"]] == ["about ada"]
    assert found["index"] is None


async def test_a_failure_is_a_problem_and_an_accepted_one_is_marked(
    client: httpx.AsyncClient,
) -> None:
    problem = problem_of(await client.post("/v1/retrievers/failing", json={}))
    assert problem["type"] == "urn:headwater:problem:retriever-failed"
    assert "hunter2" not in problem["detail"]
    found = await retrieve(client, "forgiving")
    assert (found["failed"], found["chunks"]) == (True, [])


@pytest.mark.parametrize(
    ("name", "params", "status", "detail"),
    [
        ("fnd", {}, 404, "did you mean 'find'"),
        ("find", {}, 422, "retriever 'find' needs the parameter 'question'"),
        ("find", {"qestion": "a"}, 422, "has no parameter 'qestion'"),
        ("find", {"question": 3}, 422, "parameter 'question'"),
    ],
)
async def test_bad_arguments_are_problems_that_name_the_remedy(
    name: str, params: dict[str, Any], status: int, detail: str, client: httpx.AsyncClient
) -> None:
    problem = problem_of(await client.post(f"/v1/retrievers/{name}", json={"params": params}))
    assert problem["status"] == status
    assert detail in problem["detail"]
