"""Without content, the log has the place of an exception and not its message."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.errors import ContextFailedError
from headwater.http.app import create_app
from headwater.model.contexts import Overrides
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.engine.support import records

SECRETS = {"user_id": "ada-lovelace", "question": "what of my diagnosis?"}


def desk(store: FeatureStore) -> type:
    """Declare contexts that fail, each in another way; return the entity."""

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
    return User


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


def declare_callers(store: FeatureStore) -> None:
    """Declare a handler for each kind of failure, and a schedule: all call with a secret."""
    user = desk(store)
    question = SECRETS["question"]

    async def calls(name: str) -> str:
        return (await store.assemble(name, SECRETS)).content

    async def calls_with_an_invalid_option(name: str) -> str:
        options = Overrides(interaction_ref=question)  # type: ignore[arg-type]
        return (await store.assemble("of_its_own", SECRETS, options)).content

    async def hides_the_cause(name: str) -> str:
        try:
            return await calls("of_its_own")
        except ContextFailedError as error:
            raise RuntimeError(str(error)) from error

    kinds = {
        **dict.fromkeys(CONTEXTS, calls),
        "of_an_option": calls_with_an_invalid_option,
        "of_another_error": hides_the_cause,
    }
    for name, call in kinds.items():
        declare_handler(user, name, call)
    declare_schedule(user, calls)


def declare_handler(user: type, name: str, call: Callable[[str], Awaitable[str]]) -> None:
    async def handled(user_id: str, event: ServiceEvent) -> str:
        return await call(name)

    feature(entity=user, name=f"handled_{name}", trigger="asked", max_retries=0)(handled)


def declare_schedule(user: type, call: Callable[[str], Awaitable[str]]) -> None:
    @feature(entity=user, trigger="asked")
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 1

    @feature(entity=user, refresh="1h", materialize=True)
    async def scheduled(user_id: str) -> str:
        return await call("of_a_search")


@pytest.mark.both_environments
async def test_failures_inside_handlers_and_schedules_leave_no_input_in_logs_or_dead_letters(
    settings: Settings,
    clock: ManualClock,
    capsys: pytest.CaptureFixture[str],
    *,
    private: bool,
) -> None:
    chosen = settings.replace(record={"include_content": not private})
    async with FeatureStore(settings=chosen, clock=clock) as store:
        declare_callers(store)
        await store.publish("asked", "u1")
        await store.drain()
        clock.advance("1h")
        await store.drain()
        letters = await store.dead_letters.list()
    assert len(letters) == len(CONTEXTS) + 2
    said = capsys.readouterr().err
    (refreshed,) = records(said, "refresh failed")
    written = [*(letter.error + letter.traceback for letter in letters), refreshed["error"]]
    for text in [*written, said]:
        assert not private or not any(secret in text for secret in SECRETS.values())
    assert private or all(any(s in text for s in SECRETS.values()) for text in written)
    for letter in letters:
        assert __file__ in letter.traceback
        assert "Error" in letter.error


async def test_a_handlers_own_error_keeps_its_message(
    settings: Settings, clock: ManualClock
) -> None:
    chosen = settings.replace(record={"include_content": False})
    async with FeatureStore(settings=chosen, clock=clock) as store:

        @entity(store)
        class User:
            user_id: str

        @feature(entity=User, trigger="bought", max_retries=0)
        async def item(user_id: str, event: ServiceEvent) -> str:
            return str(event.payload["item"])

        await store.publish("bought", "u1")
        await store.drain()
        (letter,) = await store.dead_letters.list()
    assert letter.error == "KeyError: 'item'"
