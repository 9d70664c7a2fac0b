"""Arguments of contexts over HTTP: every kind of parameter, and the interaction reference."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import date
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from headwater import FeatureStore, context
from headwater.errors import FieldError, InvalidInputError
from headwater.settings.schema import Settings
from tests.http.conftest import KEY, client_of, problem_of


class Turn(msgspec.Struct):
    """A reference of a type that the user declares."""

    call_id: str


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FeatureStore]:
    settings = Settings().replace(api_key=KEY, home=str(tmp_path))
    async with FeatureStore(settings=settings) as store:
        yield store


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(store) as client:
        yield client


async def content(client: httpx.AsyncClient, name: str, **body: Any) -> Any:
    response = await client.post(f"/v1/contexts/{name}", json=body)
    assert response.status_code == 200, response.text
    return response.json()["content"]


async def problem(client: httpx.AsyncClient, name: str, **body: Any) -> dict[str, Any]:
    response = await client.post(f"/v1/contexts/{name}", json=body)
    assert response.status_code == 422
    return problem_of(response)


@pytest.mark.parametrize("given", [7, "7", "-7", "0"])
async def test_a_whole_number_may_be_given_as_text(
    store: FeatureStore, client: httpx.AsyncClient, given: int | str
) -> None:
    @context(store)
    def made(customer_id: int, other: int | None = None, *rest: int) -> str:
        return repr((customer_id, other, rest))

    number = int(given)
    params = {"customer_id": given, "other": given, "rest": [given]}
    assert await content(client, "made", params=params) == repr((number, number, (number,)))


@pytest.mark.parametrize(
    "given", ["07", "+7", " 7", "7.0", "7e0", "-0", "\u0667", "", "1" * 20, True]
)
async def test_a_text_that_spells_no_whole_number_as_ids_do_is_refused(
    store: FeatureStore, client: httpx.AsyncClient, given: object
) -> None:
    @context(store)
    def made(customer_id: int) -> str:
        return str(customer_id)

    refused = await problem(client, "made", params={"customer_id": given})
    assert refused["field"] == "params.customer_id"
    assert "Expected `int`" in refused["detail"]


async def test_a_text_stays_text_where_text_is_annotated_and_is_not_a_float(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    @context(store)
    def made(either: int | str, share: float = 0.0) -> str:
        return repr((either, share))

    assert await content(client, "made", params={"either": "7"}) == "('7', 0.0)"
    refused = await problem(client, "made", params={"either": "7", "share": "7"})
    assert refused["field"] == "params.share"


async def test_parameters_of_every_kind_are_given_by_name(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    @context(store)
    def made(
        first: date, second: int = 2, /, third: int = 3, *rest: date, last: int = 4, **more: date
    ) -> str:
        return repr((first.year, second, third, [each.year for each in rest], last, more))

    day = "2026-01-15"
    given = {"first": day, "rest": [day, day], "last": 5, "more": day}
    said = await content(client, "made", params=given)
    assert said == "(2026, 2, 3, [2026, 2026], 5, {'more': datetime.date(2026, 1, 15)})"
    assert await content(client, "made", params={"first": day}) == "(2026, 2, 3, [], 4, {})"


@pytest.mark.parametrize(
    ("params", "field", "detail"),
    [
        ({}, "params.first", "needs the parameter 'first'"),
        ({"first": 1, "rest": 5}, "params.rest", "Expected `array`"),
        ({"first": 1, "rest": ["x"]}, "params.rest", "Expected `int`"),
        ({"first": 1, "rset": [1]}, "params.rset", "did you mean 'rest'?"),
    ],
)
async def test_parameters_of_every_kind_are_refused_by_name(
    store: FeatureStore,
    client: httpx.AsyncClient,
    params: dict[str, Any],
    field: str,
    detail: str,
) -> None:
    @context(store)
    def made(first: int, /, *rest: int) -> str:
        return "never"

    told = await problem(client, "made", params=params)
    assert told["field"] == field
    assert detail in told["detail"]


async def test_a_reference_reaches_the_function_that_has_a_parameter_for_it(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    @context(store)
    async def needs(interaction_ref: Turn) -> str:
        return interaction_ref.call_id

    @context(store)
    async def may_have(interaction_ref: dict[str, Any] | None = None) -> str:
        return str(interaction_ref)

    reference = {"call_id": "c-17"}
    for body in ({"interaction_ref": reference}, {"params": {"interaction_ref": reference}}):
        for name, said in (("needs", "c-17"), ("may_have", str(reference))):
            response = await client.post(f"/v1/contexts/{name}", json=body)
            answer = response.json()
            assert (response.status_code, answer["content"]) == (200, said)
            assert answer["interaction_ref"] == reference
    assert await content(client, "may_have", interaction_ref=None) == "None"
    told = await problem(client, "needs", interaction_ref=None)
    assert told["field"] == "params.interaction_ref"


@pytest.mark.parametrize("takes", [True, False])
async def test_a_reference_that_is_given_twice_is_refused(
    store: FeatureStore, client: httpx.AsyncClient, *, takes: bool
) -> None:
    async def with_one(interaction_ref: dict[str, Any]) -> str:
        return "never"

    async def without() -> str:
        return "never"

    context(store, name="made")(with_one if takes else without)
    told = await problem(
        client, "made", params={"interaction_ref": {"a": 1}}, interaction_ref={"a": 2}
    )
    assert told["field"] == "interaction_ref"
    assert "give it once" in told["detail"]


async def test_overrides_that_no_record_holds_are_refused(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    @context(store)
    async def made() -> str:
        raise AssertionError("it ran")

    told = await problem(client, "made", max_tokens=2**53)
    assert "below 2^53" in told["detail"]
    told = await problem(client, "made", freshness_sla="999999999d")
    assert "longer than a record can hold" in told["detail"]


async def test_a_call_by_name_converts_and_refuses_as_http_does(
    store: FeatureStore, client: httpx.AsyncClient
) -> None:
    @context(store)
    def made(customer_id: int, day: date, rate: float = 1.0, *, turn: Turn | None = None) -> str:
        return repr((customer_id, day, rate, turn))

    for params in (
        {"customer_id": "7", "day": "2026-01-31"},
        {"customer_id": 7, "day": "2026-01-31", "rate": 2, "turn": {"call_id": "c"}},
        {"customer_id": 7, "day": "2026-01-31", "interaction_ref": {"call_id": "c"}},
    ):
        called = await store.assemble("made", params)
        answer = (await client.post("/v1/contexts/made", json={"params": params})).json()
        assert called.content == answer["content"]
        assert called.interaction_ref == answer["interaction_ref"]
    for refused in (
        {"customer_id": 7},
        {"customer_id": 7, "day": "2026-01-31", "rat": 1},
        {"customer_id": "seven", "day": "2026-01-31"},
        {"customer_id": 7, "day": "soon"},
        {"customer_id": 7, "day": "2026-01-31", "turn": {}},
        {"customer_id": 7, "day": "2026-01-31", "interaction_ref": "c"},
    ):
        with pytest.raises(InvalidInputError) as caught:
            await store.assemble("made", refused)
        told = await problem(client, "made", params=refused)
        assert told["detail"] == str(caught.value)
        if isinstance(caught.value, FieldError):
            assert told["field"] == caught.value.field
    in_its_type = {"customer_id": 7, "day": date(2026, 1, 31), "turn": Turn("c")}
    assert (await store.assemble("made", in_its_type)).content.endswith("Turn(call_id='c'))")


async def test_a_whole_number_in_a_body_may_be_written_with_a_point(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.post("/v1/history/export", json={"after": 0.0})).status_code == 200
    for after in (1.5, -1.0, 1e30):
        refused = await client.post("/v1/history/export", json={"after": after})
        assert (refused.status_code, refused.json()["field"]) == (422, "after")


async def test_an_entity_or_document_that_is_refused_has_its_own_status(
    client: httpx.AsyncClient,
) -> None:
    body = {"entity": "Usr", "entity_id": "ada", "reason": "request 12"}
    assert (await client.post("/v1/forget", json=body)).status_code == 404
    documents = {"documents": [{"id": "a", "text": "b"}]}
    refused = await client.post("/v1/indexes/none/documents", json=documents)
    assert refused.status_code == 404
