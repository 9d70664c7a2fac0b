"""Lists of contexts over HTTP: filters, counts over time, exports and comparisons."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from headwater import FeatureStore, ServiceEvent, context, entity, feature
from headwater.contexts.recorded import search
from headwater.http.routes import context_lists
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.http.conftest import client_of

pytestmark = pytest.mark.both_environments
FORMULA = "=HYPERLINK(1)"


@pytest.fixture
async def store(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    store = FeatureStore(settings=settings.replace(api_key="a key of the tests"), clock=clock)

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="purchase")
    async def spend(user_id: str, event: ServiceEvent) -> float:
        return 0.0

    @context(store, max_tokens=50)
    async def brief(user_id: str) -> str:
        return f"{user_id} spent {await store.get_feature('spend', user_id)}"

    async with store:
        yield store


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(store) as client:
        yield client


@pytest.fixture
async def made(store: FeatureStore, clock: ManualClock) -> list[str]:
    """Record contexts, a minute apart: of two users, and one that was assembled elsewhere."""
    ids = []
    for user_id, amount in (("u1", 5.0), ("u2", 7.0), ("u1", 9.0)):
        await store.set_feature("spend", user_id, amount)
        ids.append((await store.assemble("brief", {"user_id": user_id})).context_id)
        clock.advance("1m")
    elsewhere = await store.record_external(name=FORMULA, content="x", model="m" * 999)
    return [*ids, elsewhere.context_id]


async def get(client: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await client.get(path, params=query)
    assert response.status_code == 200, response.text
    return response.json()


async def test_lists_take_a_prefix_an_order_and_a_span(
    client: httpx.AsyncClient, made: list[str]
) -> None:
    async def ids(path: str = "/v1/contexts", **query: Any) -> list[str]:
        return [each["context_id"] for each in (await get(client, path, **query))["contexts"]]

    listed = (await get(client, "/v1/contexts"))["contexts"]
    assert await ids(order="oldest") == made
    assert await ids(prefix=made[1]) == [made[1]]
    assert await ids(prefix=listed[0]["record_hash"][:24]) == [made[3]]
    found = "/v1/contexts/by-provenance"
    span = {"start": listed[2]["created_at"], "end": listed[0]["created_at"]}
    assert await ids(found, feature="spend", **span) == [made[2], made[1]]
    assert await ids(found, entity_id="u1", order="oldest") == [made[0], made[2]]
    assert await ids(found, entity_id="u1", name="other") == []
    assert (listed[0]["model"], listed[1]["max_tokens"]) == (None, 50)


async def test_contexts_are_counted_over_time(client: httpx.AsyncClient, made: list[str]) -> None:
    counted = await get(client, "/v1/contexts/by-time")
    assert (counted["contexts"], counted["counted_from"]) == (len(made), None)
    assert sum(each["contexts"] for each in counted["buckets"]) == len(made)
    of_user = await get(client, "/v1/contexts/by-time", entity="User", entity_id="u1", buckets=3)
    assert of_user["contexts"] == 2
    assert len(of_user["buckets"]) <= 3
    assert (await client.get("/v1/contexts/by-time", params={"entity": "User"})).status_code == 422
    assert (await client.get("/v1/contexts/by-time", params={"buckets": 0})).status_code == 422


async def test_a_whole_list_is_exported_in_pages(
    client: httpx.AsyncClient, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_lists, "LARGEST_PAGE", 2)
    response = await client.get("/v1/contexts/export-ndjson")
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert "contexts.ndjson" in response.headers["content-disposition"]
    lines = [msgspec.json.decode(line) for line in response.content.splitlines()]
    assert lines == (await get(client, "/v1/contexts"))["contexts"]
    of_user = await client.get("/v1/contexts/export-ndjson", params={"entity_id": "u1"})
    found = [msgspec.json.decode(line)["context_id"] for line in of_user.content.splitlines()]
    assert found == [made[2], made[0]]
    assert (
        await client.get("/v1/contexts/export-csv", params={"entity": "User"})
    ).status_code == 422


async def test_a_list_is_exported_as_csv_without_formulas(
    client: httpx.AsyncClient, made: list[str]
) -> None:
    response = await client.get("/v1/contexts/export-csv", params={"start": "2000-01-01T00:00:00Z"})
    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert [row["context_id"] for row in rows] == made[::-1]
    assert (rows[0]["name"], rows[1]["name"]) == (f"'{FORMULA}", "brief")
    assert (rows[1]["max_tokens"], rows[1]["is_signed"], rows[1]["caller"]) == ("50", "false", "")
    assert rows[1]["created_at"].endswith("Z")


async def test_two_contexts_are_compared(
    store: FeatureStore, client: httpx.AsyncClient, made: list[str]
) -> None:
    found = await get(client, f"/v1/context/{made[0]}/diff/{made[2]}")
    assert not found["same_content"]
    (spend,) = found["features"]
    assert (spend["change"], spend["before"]["value"], spend["after"]["value"]) == (
        *("changed", 5.0, 9.0),
    )
    assert "-u1 spent 5.0" in found["text"]
    assert "+u1 spent 9.0" in found["text"]
    same = await get(client, f"/v1/context/{made[0]}/diff/{made[0]}")
    assert (same["same_content"], same["text"]) == (True, "")
    assert (await client.get(f"/v1/context/{made[0]}/diff/unknown")).status_code == 404


async def test_a_page_ends_when_enough_contexts_were_examined(
    client: httpx.AsyncClient, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_MOST_EXAMINED", 1)
    query = {"entity_id": "u1", "name": "other"}
    page = await get(client, "/v1/contexts/by-provenance", **query)
    assert page == {"contexts": [], "next_cursor": made[2]}
    page = await get(client, "/v1/contexts/by-provenance", cursor=made[0], **query)
    assert page == {"contexts": [], "next_cursor": None}
