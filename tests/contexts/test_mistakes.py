"""Mistakes in a features file: a context's own failure, not its caller's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from inspect import isawaitable
from typing import Any

import httpx
import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    TokenBudgetError,
    context,
    retriever,
)
from headwater.errors import (
    BackendError,
    ContextFailedError,
    HeadwaterError,
    InvalidInputError,
    RecordValueError,
    TemplateError,
    UnknownContextError,
    UnknownNameError,
    UnknownReferenceError,
)
from headwater.http.app import create_app
from tests.engine.support import records

UNRECORDED = "01a1de13-6731-767b-b9ee-76ce545fa0ef"


@pytest.fixture
async def client(store: FeatureStore) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(store))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


Mistake = Callable[[FeatureStore], object]

MISTAKES: list[tuple[Mistake, type[HeadwaterError], str]] = [
    (lambda store: store.get_feature("plam", "u1"), UnknownNameError, "did you mean 'plan'?"),
    (
        lambda store: store.get_feature("plan", ""),
        InvalidInputError,
        "text of 1 to 1024 characters",
    ),
    (
        lambda store: store.get_context_at(UNRECORDED),
        UnknownContextError,
        "see `headwater context list`",
    ),
    (lambda _: ContextItem.template("{plam}"), UnknownReferenceError, "did you mean 'plan'?"),
    (lambda _: ContextItem.template("{"), TemplateError, "double it for a literal brace"),
    (lambda _: None, InvalidInputError, "must return ContextItems or text, not NoneType"),
    (
        lambda _: ContextItem("text", priority="high"),  # type: ignore[arg-type]
        InvalidInputError,
        "priority of a ContextItem is a whole number, not str",
    ),
    (
        lambda _: ContextItem("text", priority=-(10**30)),
        InvalidInputError,
        "a whole number within ±(2^53-1)",
    ),
    (
        lambda _: ContextItem("text", source=object()),
        RecordValueError,
        "/items/0/source/ref: records do not support the type builtins.object",
    ),
    (lambda _: "half a character: \ud83d", RecordValueError, "with errors='replace'"),
]


@pytest.mark.parametrize(("mistake", "kind", "remedy"), MISTAKES)
async def test_a_mistake_in_the_function_raises_context_failed(
    store: FeatureStore,
    user: type,
    client: httpx.AsyncClient,
    capsys: pytest.CaptureFixture[str],
    mistake: Mistake,
    kind: type[HeadwaterError],
    remedy: str,
) -> None:
    @context(store)
    async def made(user_id: str) -> object:
        given = mistake(store)
        return await given if isawaitable(given) else given

    with pytest.raises(ContextFailedError, match="context 'made' failed: ") as caught:
        await made("u1")
    assert type(caught.value.raised) is kind
    assert caught.value.__cause__ is caught.value.raised
    assert remedy in str(caught.value)
    response = await client.post("/v1/contexts/made", json={"params": {"user_id": "u1"}})
    problem = response.json()
    assert (response.status_code, problem["context"]) == (500, "made")
    assert problem["type"].endswith(":context-failed")
    (record,) = records(capsys.readouterr().err, "request failed")
    assert remedy in record["error"]


async def test_a_retriever_with_a_wrong_result_makes_the_context_fail(
    store: FeatureStore, client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    @retriever(store)
    async def search() -> Any:
        return {"text": "one mapping in place of a list"}

    @context(store)
    async def made() -> list[ContextItem]:
        return [ContextItem(chunk.text) for chunk in await search()]

    response = await client.post("/v1/contexts/made", json={})
    assert response.status_code == 500
    (record,) = records(capsys.readouterr().err, "request failed")
    assert "'search'" in record["error"]
    assert "must return a list of texts" in record["error"]


async def test_wrong_arguments_of_an_inner_context_make_the_outer_one_fail(
    store: FeatureStore,
) -> None:
    @context(store)
    async def inner(user_id: str) -> str:
        return user_id

    @context(store)
    async def outer() -> str:
        return (await inner(object())).content  # type: ignore[arg-type]

    with pytest.raises(ContextFailedError) as caught:
        await outer()
    assert (caught.value.context, type(caught.value.raised)) == ("outer", RecordValueError)


@pytest.mark.parametrize("user_id", ["", "tab\t", "x" * 2_000])
async def test_an_argument_that_can_be_no_entitys_id_is_the_callers_mistake(
    store: FeatureStore, user: type, client: httpx.AsyncClient, user_id: str
) -> None:
    @context(store)
    async def reads(customer: str) -> str:
        return str(await store.get_feature("plan", customer))

    @context(store)
    async def templated(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store)
    async def around(customer: str) -> str:
        return (await reads(customer)).content

    for made, name in ((reads, "customer"), (templated, "user_id"), (around, "customer")):
        with pytest.raises(InvalidInputError, match="user_id must be"):
            await made(user_id)
        path = f"/v1/contexts/{made.definition.name}"
        response = await client.post(path, json={"params": {name: user_id}})
        assert response.status_code == 422
        assert response.json()["type"].endswith(":invalid-input")


async def test_errors_that_are_not_mistakes_keep_their_type(
    store: FeatureStore, user: type
) -> None:
    @context(store, max_tokens=3, model="gpt-4o")
    async def tight() -> str:
        return "much too long for three tokens"

    @context(store, freshness_sla="1s", freshness_strict=True)
    async def strict(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store)
    async def away() -> str:
        raise BackendError("the disk is full")

    with pytest.raises(TokenBudgetError):
        await tight()
    with pytest.raises(FreshnessSLAError):
        await strict("u1")
    with pytest.raises(BackendError):
        await away()
