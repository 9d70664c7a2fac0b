"""Without content, the log has the place of an exception and not its message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from headwater import ContextItem, FeatureStore, context, entity, feature, retriever
from headwater.http.app import create_app
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records

SECRETS = {"user_id": "ada-lovelace", "question": "what of my diagnosis?"}


def desk(store: FeatureStore) -> None:
    """Contexts that fail, each in another way."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User)
    def age(user_id: str) -> int:
        return int(f"no number: {user_id}")

    @retriever(store)
    def search(query: str) -> list[str]:
        raise LookupError(query)

    @context(store)
    def of_its_own(user_id: str, question: str) -> str:
        answers: dict[str, str] = {}
        return answers[question]

    @context(store)
    async def of_a_search(user_id: str, question: str) -> Any:
        return [ContextItem(chunk.text) for chunk in await search(question)]

    @context(store)
    async def of_a_feature(user_id: str, question: str) -> ContextItem:
        return ContextItem.template("{age}")

    declare_odd(store)


def declare_odd(store: FeatureStore) -> None:
    """Contexts and retrievers that fail in different ways."""

    @context(store)
    async def of_several(user_id: str, question: str) -> str:
        try:
            raise ValueError(question)
        except ValueError:
            raise ExceptionGroup(user_id, [KeyError(question), KeyError(user_id)])  # noqa: B904

    @context(store)
    async def of_a_mistake(user_id: str, question: str) -> str:
        return str(await store.get_feature(question, user_id))


CONTEXTS = ["of_its_own", "of_a_search", "of_a_feature", "of_several", "of_a_mistake"]


@pytest.fixture(params=["private", "open"])
def private(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "private")


@pytest.fixture
async def client(
    settings: Settings, clock: ManualClock, *, private: bool
) -> AsyncIterator[httpx.AsyncClient]:
    chosen = settings.replace(record={"include_content": not private})
    async with FeatureStore(settings=chosen, clock=clock) as store:
        desk(store)
        transport = httpx.ASGITransport(app=create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield client


@pytest.mark.parametrize("name", CONTEXTS)
async def test_a_failure_is_logged_by_its_types_and_places(
    client: httpx.AsyncClient, capsys: pytest.CaptureFixture[str], name: str, *, private: bool
) -> None:
    response = await client.post(f"/v1/contexts/{name}", json={"params": SECRETS})
    assert response.status_code == 500
    said = capsys.readouterr().err
    (record,) = records(said, "request failed")
    assert any(secret in said for secret in SECRETS.values()) is not private
    assert "FailedError" in record["error"] or "RaisedError" in record["error"]
    assert __file__ in record["traceback"] or name == "of_a_mistake"
    if private:
        assert record["error"].isidentifier()


async def test_the_cause_of_a_private_failure_has_file_line_and_function(
    settings: Settings, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = settings.replace(record={"include_content": False})
    async with FeatureStore(settings=chosen, clock=clock) as store:
        desk(store)
        transport = httpx.ASGITransport(app=create_app(store))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/v1/contexts/of_several", json={"params": SECRETS})
    (record,) = records(capsys.readouterr().err, "request failed")
    lines = record["traceback"].splitlines()
    types = [line for line in lines if not line.startswith(" ")]
    assert types == [
        "headwater.errors.ContextFailedError",
        "builtins.ExceptionGroup",
        "builtins.ValueError",
        "builtins.KeyError",
        "builtins.KeyError",
    ]
    function = declare_odd.__code__.co_firstlineno
    places = [line for line in lines if line.endswith(" in declare_odd.<locals>.of_several")]
    assert all(line.startswith(f"  {__file__}:") for line in places)
    assert all(int(line.split(":")[-1].split()[0]) > function for line in places)
    assert len(places) == 2
