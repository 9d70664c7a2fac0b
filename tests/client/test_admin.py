"""The verbs of a client for administrators give the results of the store."""

from __future__ import annotations

import httpx
import pytest

from headwater import FeatureStore, create_app
from headwater.client import AsyncClient, Client
from headwater.errors import (
    ConnectionLostError,
    InvalidInputError,
    UnexpectedResponseError,
    UnknownDeadLetterError,
    UnknownGroupError,
)
from headwater.http.routing.problems import problem_response
from headwater.settings.schema import Settings
from tests.client.conftest import KEY, URL, MakeClient


async def fail(store: FeatureStore, *users: str) -> None:
    """Publish an event of each user that its feature cannot handle."""
    for user in users:
        await store.publish("purchase", user, {"amount": "no"})
    await store.drain()


async def test_dead_letters_are_listed_redriven_and_discarded(
    client: AsyncClient, store: FeatureStore
) -> None:
    await fail(store, "ada", "bob")
    first, second = letters = await store.dead_letters.list()
    assert await client.dead_letters.list() == letters
    assert await client.dead_letters.list(entity_id=second.event.entity_id, limit=5) == [second]
    assert await client.dead_letters.list(ids=[first.id, "999-9"]) == [first]
    with pytest.raises(UnknownDeadLetterError, match="999") as caught:
        await client.dead_letters.redrive(first.id, "999")
    assert caught.value.letter_id == "999"
    await client.dead_letters.discard(first.id)
    await client.dead_letters.redrive(second.id)
    await client.dead_letters.redrive()
    assert await client.dead_letters.list() == []
    actions = [
        (each.action, each.actor, each.outcome) for each in (await client.audit_log()).entries
    ]
    assert actions == [
        ("dead_letters.redrive", "api_key 1", "done"),
        ("dead_letters.discard", "api_key 1", "done"),
        ("dead_letters.redrive", "api_key 1", "failed"),
    ]


async def test_dead_letters_that_match_are_settled_one_by_one(store: FeatureStore) -> None:
    await fail(store, "ada", "bob", "cid")
    ids = {letter.event.entity_id: letter.id for letter in await store.dead_letters.list()}
    transport = httpx.ASGITransport(create_app(store))
    headers = {"x-api-key": KEY}
    async with httpx.AsyncClient(transport=transport, base_url=URL, headers=headers) as http:
        discarded = await http.post("/v1/dead-letters/discard", json={"entity_id": "bob"})
        assert discarded.json() == {"dead_letters": [{"id": ids["bob"], "outcome": "discarded"}]}
        redriven = await http.post("/v1/dead-letters/redrive", json={"event_type": "purchase"})
        settled = {each["id"]: each["outcome"] for each in redriven.json()["dead_letters"]}
        assert settled == {ids["ada"]: "redriven", ids["cid"]: "redriven"}
        none = await http.post("/v1/dead-letters/redrive", json={"ids": []})
        assert none.json() == {"dead_letters": []}


async def test_lag_groups_and_events_are_those_of_the_store(
    client: AsyncClient, store: FeatureStore
) -> None:
    event = await store.publish("moved", "ada", {"city": "Rome"})
    assert await client.admin.lag() == await store.admin.lag()
    (logged,) = await client.bus.list(event_id=event.event_id)
    assert logged == (await store.bus.list())[0]
    assert await client.bus.list(event_type="purchase") == []
    await store.drain()
    (group,) = await client.admin.groups()
    with pytest.raises(UnknownGroupError, match="did you mean"):
        await client.admin.drop_group(group.name + "x")
    await client.admin.drop_group(group.name)
    assert await store.admin.groups() == []
    with pytest.raises(InvalidInputError, match="total_spend"):
        await client.admin.refresh("total_spend")


async def test_features_and_indexes_are_renamed_and_dropped(
    client: AsyncClient, store: FeatureStore
) -> None:
    await store.publish("purchase", "ada", {"amount": 5})
    await store.drain()
    assert await client.catalog.versions("total_spend") == await store.catalog.versions(
        "total_spend"
    )
    counted = await client.catalog.drop("total_spend", dry_run=True)
    assert (counted.online, counted.history) == (1, 1)
    await client.catalog.rename("total_spend", "spend")
    assert (await client.catalog.drop("spend")).versions == [1]
    await store.index("docs", "parcels", "Parcels arrive within 3 days.")
    assert await client.indexes.drop("docs") == 1


async def test_values_of_a_record_are_redacted(client: AsyncClient) -> None:
    made = await client.assemble("support", {"user_id": "ada", "question": "Where?"})
    copies = await client.records.copies(made.context_id, "/inputs/question")
    assert copies == {made.context_id: ["/retrievals/0/arguments", "/retrievals/0/index/query"]}
    record = await client.records.redact(
        made.context_id, "/inputs/question", reason="asked", by="ada"
    )
    assert [(note.pointer, note.by) for note in record.redactions] == [("/inputs/question", "ada")]
    assert (await client.get_context_at(made.context_id)).inputs["question"] is None
    with pytest.raises(InvalidInputError, match="/inputs/question"):
        await client.records.redact(made.context_id, "/inputs/questions", reason="asked")


async def test_long_actions_report_their_progress_and_their_result(
    client: AsyncClient, store: FeatureStore
) -> None:
    await store.publish("purchase", "ada", {"amount": 5})
    await store.drain()
    assert await client.admin.rebuild() == await store.admin.rebuild()
    assert await client.admin.audit() == await store.admin.audit()


class _Lines(httpx.AsyncBaseTransport):
    """A server that answers every request with these lines."""

    def __init__(self, *lines: bytes) -> None:
        self._body = b"\n".join(lines)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=self._body)


async def test_progress_is_reported_and_a_problem_is_raised(connect: MakeClient) -> None:
    steps: list[tuple[int, int]] = []
    progress = b'{"progress": {"done": 3, "total": 7}}'
    problem = problem_response(UnknownGroupError("g", ["h"])).body
    client = connect(transport=_Lines(progress, b'{"problem": %s}' % bytes(problem)))
    with pytest.raises(UnknownGroupError, match="unknown consumer group 'g'"):
        await client.admin.rebuild(progress=lambda *step: steps.append(step))
    assert steps == [(3, 7)]
    for line, kind in ((progress, ConnectionLostError), (b"<html>", UnexpectedResponseError)):
        with pytest.raises(kind, match=URL):
            await connect(transport=_Lines(line)).admin.rebuild()


def test_the_blocking_client_has_the_same_verbs(store: FeatureStore) -> None:
    options = {"settings": Settings(), "transport": httpx.ASGITransport(create_app(store))}
    with Client(URL, key=KEY, **options) as client:
        assert client.admin.rebuild().values == 0
        assert [entry.action for entry in client.audit_log().entries] == ["admin.rebuild"]
        assert client.dead_letters.list() == []
