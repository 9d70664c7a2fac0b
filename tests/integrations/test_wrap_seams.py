"""Recording answers where it meets privacy, erasure, limits of keys, replays and outages."""

from __future__ import annotations

import asyncio
import pickle
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import openai
import pytest

import headwater
from headwater import Context, ContextItem, FeatureStore, ServiceEvent, create_app
from headwater.client import AsyncClient
from headwater.model.bound_contexts import Binding, bound
from headwater.settings.schema import Settings
from headwater.testing import ModelServer
from tests.http.key_files import add_key
from tests.integrations.test_wrap import recorded, response_to, text_of

pytestmark = pytest.mark.both_environments

QUESTION = "How long does the parcel take?"
ANSWER = "The parcel takes two days."
NOT_RECORDED = "answer of a model not recorded"

Support = Callable[..., Any]
Connect = Callable[..., AsyncClient]


@pytest.fixture
def model() -> Iterator[ModelServer]:
    """Yield a server in the wire formats of both SDKs."""
    with ModelServer() as server:
        yield server


@pytest.fixture
async def gpt(model: ModelServer) -> AsyncIterator[Any]:
    """Yield a wrapped client."""
    url = f"{model.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="local", max_retries=0) as client:
        yield headwater.wrap(client)


@pytest.fixture
def blocking_gpt(model: ModelServer) -> Iterator[Any]:
    """Yield a wrapped client."""
    url = f"{model.url}/v1"
    with openai.OpenAI(base_url=url, api_key="local", max_retries=0) as client:
        yield headwater.wrap(client)


@pytest.fixture
def support(store: FeatureStore, user: type) -> Support:
    """Return a context that is messages and reads a feature."""

    @store.feature(user, trigger="ordered")
    def order(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["order"])

    @store.context(model="gpt-4o", max_tokens=500)
    async def support(user_id: str, question: str) -> list[ContextItem]:
        return [
            ContextItem(f"A refund takes a week. {ANSWER}", role="system"),
            ContextItem.template("Order: {order}", role="system"),
            ContextItem(question, role="user"),
        ]

    return support


@pytest.fixture
async def ctx(store: FeatureStore, support: Support) -> Context:
    """Return an assembled context."""
    await store.publish("ordered", "ada", {"order": "tent"})
    await store.drain()
    context: Context = await support("ada", QUESTION)
    return context


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """Return settings with a file of keys."""
    return settings.replace(keys_file=str(tmp_path / "keys.toml"))


@pytest.fixture
async def connect(store: FeatureStore, ctx: Context) -> AsyncIterator[Connect]:
    """Yield a function that makes clients of a server, with one of two keys."""
    file = Path(store.settings.keys_file)
    keys = {
        "recording": add_key(file, "recording", "assemble", "outcomes"),
        "assembling": add_key(file, "assembling", "assemble"),
    }
    transport = httpx.ASGITransport(create_app(store))
    clients: list[AsyncClient] = []

    def connect(key: str) -> AsyncClient:
        options: dict[str, Any] = {"settings": Settings(), "transport": transport}
        clients.append(AsyncClient("http://localhost", key=keys[key], **options))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()


async def test_in_privacy_mode_no_text_of_an_answer_is_stored(settings: Settings, gpt: Any) -> None:
    private = FeatureStore(settings=settings.replace(record={"include_content": False}))

    @private.context(model="gpt-4o", max_tokens=500)
    async def support(question: str) -> list[ContextItem]:
        return [ContextItem(ANSWER, role="system"), ContextItem(question, role="user")]

    async with private:
        context = await support(QUESTION)
        async with context:
            await gpt.chat.completions.create(**context.to_openai())
        (outcome,) = await recorded(private, context)
    assert ANSWER.encode() not in msgspec.json.encode(outcome)
    assert outcome.withheld


async def test_an_answer_that_comes_after_its_customer_was_forgotten_has_no_text(
    store: FeatureStore, ctx: Context, gpt: Any, model: ModelServer
) -> None:
    body = {**ctx.to_openai(), "model": "held"}
    call = asyncio.create_task(gpt.chat.completions.create(**body, context=ctx))
    await asyncio.to_thread(model.waiting.wait)
    await store.admin.forget("User", "ada", reason="requested by the customer")
    model.release()
    await call
    (outcome,) = await recorded(store, ctx)
    assert ANSWER.encode() not in msgspec.json.encode(outcome)


async def test_answers_to_contexts_of_a_client_are_sent_to_its_server(
    store: FeatureStore, connect: Connect, gpt: Any, blocking_gpt: Any
) -> None:
    context = await connect("recording").assemble(
        "support", {"user_id": "ada", "question": QUESTION}
    )
    async with context:
        await gpt.chat.completions.create(**context.to_openai())
        await asyncio.to_thread(blocking_gpt.chat.completions.create, **context.to_openai())
        blocking_gpt.chat.completions.create(**context.to_openai())
    outcomes = await recorded(store, context, 3)
    assert [text_of(each.response) for each in outcomes if each.response] == [ANSWER] * 3


async def test_a_key_without_the_scope_records_nothing_and_no_call_fails(
    store: FeatureStore, connect: Connect, gpt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    context = await connect("assembling").assemble(
        "support", {"user_id": "ada", "question": QUESTION}
    )
    async with context:
        for _ in range(3):
            answer = await gpt.chat.completions.create(**context.to_openai())
            assert answer.choices[0].message.content == ANSWER
    assert await store.records.outcomes(context.context_id) == []
    assert capsys.readouterr().err.count(NOT_RECORDED) == 1


async def test_a_context_that_does_not_know_its_store_is_logged(
    ctx: Context, gpt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    copied = pickle.loads(pickle.dumps(ctx))
    async with copied:
        await gpt.chat.completions.create(**copied.to_openai())
    assert NOT_RECORDED in capsys.readouterr().err


async def test_a_closed_event_loop_of_a_client_fails_no_call(
    connect: Connect, blocking_gpt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask() -> Context:
        asking = connect("recording").assemble("support", {"user_id": "ada", "question": QUESTION})
        return asyncio.run(asking)

    context = await asyncio.to_thread(ask)
    await asyncio.to_thread(
        blocking_gpt.chat.completions.create, **context.to_openai(), context=context
    )
    assert NOT_RECORDED in capsys.readouterr().err


async def test_a_replay_records_no_answer(
    store: FeatureStore, support: Support, ctx: Context, gpt: Any, model: ModelServer
) -> None:
    inner: list[Context] = []

    @store.context(max_tokens=500)
    async def summary(question: str) -> list[ContextItem]:
        asked = await support("ada", question)
        inner.append(asked)
        async with asked:
            answer = await gpt.chat.completions.create(**asked.to_openai())
        return [ContextItem(answer.choices[0].message.content)]

    made = await summary(QUESTION)
    replayed = await store.records.replay(made.context_id, "live")
    assert replayed.content == ANSWER
    assert len(model.requests) == 2
    assert text_of(await response_to(store, inner[0])) == ANSWER
    assert len(inner) == 2


async def test_a_thread_without_the_context_records_nothing(
    store: FeatureStore, ctx: Context, blocking_gpt: Any
) -> None:
    loop = asyncio.get_running_loop()
    async with ctx:
        ask = blocking_gpt.chat.completions.create
        await loop.run_in_executor(None, lambda: ask(**ctx.to_openai()))
        await loop.run_in_executor(None, lambda: ask(**ctx.to_openai(), context=ctx))
    await recorded(store, ctx, 1)


async def test_handlers_record_the_answers_that_features_are_made_of(
    store: FeatureStore, user: type, support: Support, gpt: Any, blocking_gpt: Any
) -> None:
    asked: list[Context] = []

    @store.feature(user, trigger="asked", max_retries=0)
    async def answer(user_id: str, event: ServiceEvent) -> str:
        context = await support(user_id, QUESTION)
        asked.append(context)
        async with context:
            answered = await gpt.chat.completions.create(**context.to_openai())
        return str(answered.choices[0].message.content)

    @store.feature(user, trigger="asked", max_retries=0)
    def blocking_answer(user_id: str, event: ServiceEvent) -> str:
        context = store.sync.run(support(user_id, QUESTION))
        asked.append(context)
        with context:
            answered = blocking_gpt.chat.completions.create(**context.to_openai())
        return str(answered.choices[0].message.content)

    await store.publish("asked", "ada", {})
    await store.drain()
    names = ["answer", "blocking_answer"]
    assert await store.get_features(names, ["ada"]) == {"ada": dict.fromkeys(names, ANSWER)}
    assert len(asked) == 2
    for context in asked:
        assert text_of(await response_to(store, context)) == ANSWER


async def test_calls_do_not_wait_for_a_server_that_does_not_answer(
    ctx: Context, gpt: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = AsyncClient(url, settings=Settings(), timeout=3, retries=0)
        binding = Binding(client.records, None, asyncio.get_running_loop())
        bound(ctx, binding)
        times = []
        async with ctx:
            for _ in range(5):
                began = time.monotonic()
                await gpt.chat.completions.create(**ctx.to_openai())
                times.append(time.monotonic() - began)
        assert times[0] >= 1
        assert sum(times[1:]) < 4, "only the first call waited"
        async with asyncio.timeout(30):
            while NOT_RECORDED not in (log := capsys.readouterr().err):  # noqa: ASYNC110 - the log is a file
                await asyncio.sleep(0.01)
        assert log.count(NOT_RECORDED) == 1
        await client.close()
