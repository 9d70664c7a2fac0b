"""Long verbs of the client: backfills, pruning, loads and rebuilds of indexes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from headwater import Document, FeatureStore, create_app
from headwater.client import AsyncClient
from headwater.errors import DurationError, InvalidInputError, UnknownNameError
from headwater.model.backfills import BackfillProgress
from headwater.model.indexes import LoadReport
from tests.client.conftest import KEY, URL


async def spend(store: FeatureStore, *users: str) -> None:
    for user in users:
        await store.publish("purchase", user, {"amount": 5})
    await store.drain()


async def test_a_backfill_is_run_compared_switched_to_and_cancelled(
    client: AsyncClient, store: FeatureStore
) -> None:
    await spend(store, "ada", "bob", "ada")
    steps: list[BackfillProgress] = []
    report = await client.backfills.run("total_spend", progress=steps.append)
    assert (report.version, report.is_served) == (2, False)
    assert report.replayed is not None
    assert report.replayed.events == 3
    assert await client.backfills.status("total_spend") == await store.backfills.status(
        "total_spend"
    )
    assert await client.backfills.compare("total_spend") == await store.backfills.compare(
        "total_spend"
    )
    switched = await client.backfills.switch("total_spend")
    assert (switched.version, switched.before) == (2, 1)
    assert (await client.backfills.run("total_spend")).version == 3
    assert await client.backfills.cancel("total_spend") == 3
    with pytest.raises(UnknownNameError, match="did you mean 'total_spend'"):
        await client.backfills.run("totl_spend")
    with pytest.raises(InvalidInputError, match="has no backfill"):
        await client.backfills.status("total_spend")
    actions = {(each.action, each.actor) for each in (await client.audit_log()).entries}
    verbs = ("run", "switch", "cancel")
    assert actions == {(f"backfills.{verb}", "api_key 1") for verb in verbs}


async def test_a_backfill_that_is_refused_at_once_has_its_own_status(store: FeatureStore) -> None:
    span = {"since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"}
    transport = httpx.ASGITransport(create_app(store))
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=headers) as http:
        refused = await http.post("/v1/backfills/total_spend", json=span)
    assert refused.status_code == 422
    assert "is not before until" in refused.json()["detail"]


async def test_an_argument_that_cannot_be_sent_is_refused_and_not_left_out(
    client: AsyncClient,
) -> None:
    with pytest.raises(InvalidInputError, match="files cannot be sent to a server; leave it out"):
        await client.backfills.run("total_spend", files=4)


async def test_an_entity_is_counted_and_forgotten(client: AsyncClient, store: FeatureStore) -> None:
    await spend(store, "ada", "bob")
    counted = await client.admin.forget("User", "ada", reason="request 12", dry_run=True)
    assert (counted.values, counted.history, counted.events, counted.dry_run) == (1, 1, 1, True)
    await client.admin.forget("User", "ada", reason="request 12")
    assert [event.event.entity_id for event in await store.bus.list()] == ["bob"]
    with pytest.raises(UnknownNameError, match="did you mean 'User'"):
        await client.admin.forget("Usr", "ada", reason="request 12")


async def test_rows_are_counted_and_pruned(client: AsyncClient, store: FeatureStore) -> None:
    await spend(store, "ada")
    counted = await client.admin.prune(history="1ms", events=timedelta(days=8), dry_run=True)
    assert counted.dry_run
    assert counted.events is not None
    assert counted.events.rows == 0
    assert counted.records is None
    assert not (await client.admin.prune(records="2y")).dry_run
    with pytest.raises(InvalidInputError, match="is not a duration"):
        await client.admin.prune(history="soon")


@pytest.mark.parametrize("age", ["soon", "", "0ms", timedelta(0)])
async def test_an_invalid_age_is_refused_and_nothing_is_pruned(
    client: AsyncClient, store: FeatureStore, age: str | timedelta
) -> None:
    for admin in (store.admin, client.admin):
        with pytest.raises(DurationError):
            await admin.prune(events=age, records="2y")
    assert not (await store.audit_log(action="admin.prune")).entries


async def test_a_long_verb_that_refuses_its_arguments_has_the_status_of_the_problem(
    store: FeatureStore,
) -> None:
    transport = httpx.ASGITransport(create_app(store))
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=headers) as http:
        refused = await http.post("/v1/prune", json={"history": "soon"})
    assert (refused.status_code, refused.json()["type"]) == (
        422,
        "urn:headwater:problem:invalid-duration",
    )


async def test_documents_are_loaded_in_requests_that_servers_accept(
    client: AsyncClient, store: FeatureStore
) -> None:
    # Text of three bytes a character, so that a full batch is larger than a body may be.
    texts = {f"d{number}": "\u6c34" * 100_000 for number in range(6)}

    async def documents() -> AsyncIterator[Document]:
        for name, text in texts.items():
            yield Document(name, text, {"lang": "ja"})

    reports: list[LoadReport] = []
    loaded = await client.indexes.load("docs", documents(), progress=reports.append)
    assert (loaded.documents, reports[-1]) == (6, loaded)
    assert len(reports) > 1
    again = await client.indexes.load("docs", [Document("d1", texts["d1"], {"lang": "ja"})])
    assert (again.documents, again.unchanged) == (0, 1)
    (status,) = await store.indexes.list()
    assert status.documents == 6
    with pytest.raises(UnknownNameError, match="did you mean 'docs'"):
        await client.indexes.load("dosc", [])
    with pytest.raises(InvalidInputError, match="not a str"):
        await client.indexes.load("docs", ["a text"])  # type: ignore[list-item]


async def test_an_index_is_built_again(client: AsyncClient) -> None:
    await client.index("docs", "parcels", "Parcels arrive within 3 days.")
    assert await client.indexes.reindex("docs") == 0
    with pytest.raises(UnknownNameError, match="did you mean 'docs'"):
        await client.indexes.reindex("dosc")


async def test_documents_that_are_gone_are_removed(
    client: AsyncClient, store: FeatureStore
) -> None:
    await client.indexes.load("docs", [Document("a", "One."), Document(7, "Two.")])
    assert await client.indexes.retain("docs", [7]) == 1
    (status,) = await store.indexes.list()
    assert status.documents == 1
    with pytest.raises(UnknownNameError, match="did you mean 'docs'"):
        await client.indexes.retain("dosc", [])
