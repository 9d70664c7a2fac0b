"""Counters of a store: its settings, the provider's own count, and measured margins."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater import ContextItem, FeatureStore, context
from headwater.contexts.counters import ENOUGH, FEWEST, ModelCounters, measured_margin
from headwater.core.models import Provider
from headwater.declarations.contexts import Count
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine
from headwater.errors import ConfigError, TokenBudgetError, TokenCountError
from headwater.messages.parts import Blob, Message, ModelRequest, TextPart, Tool
from headwater.model.outcomes import Usage
from headwater.ports import StoredOutcome, TokenCounter
from headwater.settings.schema import Settings
from tests.contexts.support import recorded
from tests.messages.test_chat_templates import folder
from tests.messages.test_images import png
from tests.retrieval.embeddings.provider_server import (
    KEY,
    Drop,
    Hang,
    ProviderServer,
    Reply,
    Seen,
    error,
)

REQUEST = ModelRequest(
    model="replaced",
    messages=(
        Message(role="system", parts=(TextPart(content="Be brief."),)),
        Message(
            role="user",
            parts=(
                TextPart(content="What is this?"),
                Blob(mime_type="image/png", content=png(8, 8)),
            ),
        ),
    ),
    tools=(Tool(name="find", description="Find it.", parameters={"type": "object"}),),
    max_output=100,
)


class CountServer(ProviderServer):
    """The endpoints of providers that count tokens."""

    async def _reply(self, seen: Seen) -> Reply | None:
        if self.faults:
            return await super()._reply(seen)
        if seen.path.endswith(":countTokens"):
            details = [{"modality": "TEXT", "tokenCount": 31}]
            answer: Any = {"totalTokens": 31, "promptTokensDetails": details}
        elif seen.path.endswith("/count_tokens"):
            answer = {"input_tokens": 403, "context_management": {"original_input_tokens": 403}}
        else:
            answer = {"object": "response.input_tokens", "input_tokens": 51}
        return Reply(200, msgspec.json.encode(answer))


@asynccontextmanager
async def counting(store: FeatureStore, **tokens: Any) -> AsyncIterator[ModelCounters]:
    """Yield counters with these settings, over the records of a store."""
    engine: Engine = await runtime_of(store).open()
    settings = Settings().replace(tokens=tokens)
    counters = ModelCounters(settings, engine.backends.records, engine.clock)
    try:
        yield counters
    finally:
        await counters.close()


def _settings(url: str, **others: Any) -> dict[str, Any]:
    keys = {f"{provider}_api_key": KEY for provider in get_args(Provider)}
    return keys | {f"{provider}_url": url + "/v1" for provider in get_args(Provider)} | others


def _whole(counters: ModelCounters, model: str) -> TokenCounter:
    counter = counters.whole_counter(model, ask_provider=True)
    assert counter is not None
    return counter


@pytest.mark.parametrize(
    ("model", "path", "tokens", "header"),
    [
        ("gpt-5.1", "/v1/responses/input_tokens", 51, ("authorization", f"Bearer {KEY}")),
        ("claude-opus-5", "/v1/v1/messages/count_tokens", 403, ("x-api-key", KEY)),
        (
            "gemini-3.5-flash",
            "/v1/models/gemini-3.5-flash:countTokens",
            31,
            ("x-goog-api-key", KEY),
        ),
    ],
)
async def test_a_provider_counts_what_it_would_get(
    store: FeatureStore, model: str, path: str, tokens: int, header: tuple[str, str]
) -> None:
    request = msgspec.structs.replace(REQUEST, model=model)
    async with (
        CountServer().listening() as server,
        counting(store, **_settings(server.url)) as counters,
    ):
        counter = _whole(counters, model)
        assert await counter.count(request) == tokens
        assert await counter.count(request) == tokens
        assert (counter.grade, counter.source) == ("provider", path_provider(path))
        [seen] = server.seen  # the second count is cached
    assert seen.path == path
    assert seen.headers[header[0]] == header[1]
    text = msgspec.json.encode(seen.body).decode()
    for part in ("Be brief.", "What is this?", "find", "iVBORw0KGgo"):
        assert part in text
    assert "max" not in text  # the endpoints refuse what does not count


def path_provider(path: str) -> str:
    return "gemini" if ":" in path else "anthropic" if "messages" in path else "openai"


async def test_a_whole_request_of_gemini_is_counted_with_its_instruction_and_tools(
    store: FeatureStore,
) -> None:
    request = msgspec.structs.replace(REQUEST, model="gemini-2.5-pro")
    async with (
        CountServer().listening() as server,
        counting(store, **_settings(server.url)) as counters,
    ):
        await _whole(counters, "gemini-2.5-pro").count(request)
        whole = server.seen[0].body["generate_content_request"]
    assert whole["model"] == "models/gemini-2.5-pro"
    assert whole["system_instruction"] == {"parts": [{"text": "Be brief."}]}
    assert whole["tools"][0]["function_declarations"][0]["name"] == "find"
    assert set(whole) == {"model", "contents", "system_instruction", "tools"}


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        (error(401, f"wrong key {KEY}"), "it answered with 401; check the key and the model"),
        (error(500), "it answered with 500"),
        (Reply(200, b"<html>"), "its answer cannot be read"),
        (Reply(200, b"{}"), "its answer has no count; check tokens.openai_url"),
        (Reply(200, b" " * 100_000), "its answer cannot be read"),
        (Drop(), "disconnected"),
    ],
)
async def test_a_failed_count_says_why_without_the_key(
    store: FeatureStore, fault: Reply | Drop, problem: str
) -> None:
    async with (
        CountServer().listening() as server,
        counting(store, **_settings(server.url)) as counters,
    ):
        server.faults.append(fault)
        counter = _whole(counters, "gpt-5")
        with pytest.raises(TokenCountError, match=problem) as caught:
            await counter.count(REQUEST)
        assert KEY not in str(caught.value)
        assert await counter.count(REQUEST) == 51  # and it is not cached


async def test_a_provider_that_does_not_answer_is_not_waited_for(store: FeatureStore) -> None:
    async with (
        CountServer().listening() as server,
        counting(store, **_settings(server.url, timeout=0.05)) as counters,
    ):
        server.faults.append(Hang())
        with pytest.raises(TokenCountError, match=r"no answer within 0\.05 s"):
            await _whole(counters, "gpt-5").count(REQUEST)


@pytest.mark.parametrize(
    ("model", "variable"),
    [
        ("gpt-4o", "OPENAI_API_KEY"),
        ("claude-sonnet-5", "ANTHROPIC_API_KEY"),
        ("gemini-2.5-pro", "GEMINI_API_KEY"),
    ],
)
async def test_without_a_key_the_variable_is_named(
    store: FeatureStore, model: str, variable: str
) -> None:
    async with counting(store) as counters:
        with pytest.raises(TokenCountError, match=f"there is no API key; set {variable}"):
            await _whole(counters, model).count(REQUEST)


async def test_nothing_asks_a_provider_unless_the_context_says_so(store: FeatureStore) -> None:
    async with counting(store) as counters:
        assert counters.whole_counter("gpt-4o", ask_provider=False) is None
        assert counters.whole_counter("my-own-model", ask_provider=True) is None
        assert counters.whole_counter(None, ask_provider=True) is None


async def test_an_open_model_is_counted_by_its_template(
    store: FeatureStore, tmp_path: Path
) -> None:
    models = {"my-llama": {"folder": folder(tmp_path), "window": 8_192}}
    request = ModelRequest(
        model="my-llama", messages=(Message(role="user", parts=(TextPart(content="the city"),)),)
    )
    async with counting(store, models=models) as counters:
        counters.load("my-llama")
        counter = counters.whole_counter("my-llama", ask_provider=False)
        assert counter is not None
        assert counter.grade == "exact"
        assert counter.source.startswith("tokenizer.json ")
        assert await counter.count(request) > 5
        assert counters.counter_for("my-llama").window == 8_192
        assert counters.tokenizer_for("my-llama").name == counter.source


def test_the_setting_of_models_is_checked() -> None:
    with pytest.raises(ConfigError, match="'gpt-9' of 'mine' is not a family"):
        Settings().replace(tokens={"models": {"mine": {"family": "gpt-9"}}})
    with pytest.raises(ConfigError, match="tables of family, encoding, provider, window"):
        Settings().replace(tokens={"models": {"mine": {"famly": "gpt-4o"}}})


# Margins.


def test_a_margin_is_the_error_that_99_of_100_requests_stay_within() -> None:
    exact, over = [(1_000, 1_000)], [(1_000, 1_051)]
    assert measured_margin(exact * 1_000, 30) == 0
    assert measured_margin(exact * 990 + over * 10, 30) == 0
    assert measured_margin(exact * 989 + over * 11, 30) == 6  # 5.1 %, rounded up
    assert measured_margin([(1_000, 800)] * 1_000, 30) == 0
    assert measured_margin([], 30) == 30


def test_few_measurements_can_only_raise_the_margin_of_the_table() -> None:
    assert measured_margin([(100, 100)] * (ENOUGH - 1), 30) == 30
    assert measured_margin([(100, 145)] * FEWEST, 30) == 45
    assert measured_margin([(100, 145)] * (FEWEST - 1), 30) == 30
    assert measured_margin([(0, 5)], 30) == 30


def test_a_margin_follows_an_error_of_any_size() -> None:
    assert measured_margin([(100, 250)] * 1_000, 30) == 150
    assert measured_margin([(100, 201)] * 500 + [(100, 100)] * 500, 30) == 101


@given(st.lists(st.tuples(st.integers(1, 10**6), st.integers(1, 500)), min_size=FEWEST))
def test_a_margin_is_never_below_the_error_of_99_of_100(shares: list[tuple[int, int]]) -> None:
    measured = [(predicted, -(-predicted * percent // 100)) for predicted, percent in shares]
    margin = measured_margin(measured, 30)
    beyond = sum(billed * 100 > predicted * (100 + margin) for predicted, billed in measured)
    assert beyond <= len(measured) // 100


async def bill(store: FeatureStore, context_id: str, billed: list[int], predicted: int) -> None:
    """Store outcomes with these measurements."""
    engine: Engine = await runtime_of(store).open()
    record = await engine.backends.records.get(context_id)
    assert record is not None
    for number, tokens in enumerate(billed):
        await engine.backends.records.append_outcome(
            StoredOutcome(
                outcome_id=f"{context_id}-{number}",
                context_id=context_id,
                record_hash=record.record_hash,
                outcome_hash=f"sha256:{number:064x}",
                kind="response",
                at=datetime(2026, 11, 17, tzinfo=UTC),
                predicted=predicted,
                billed=tokens,
                core=b"{}",
            )
        )


async def test_the_margin_of_a_model_follows_what_was_billed(store: FeatureStore) -> None:
    @context(store, model="my-own-model", max_tokens=1_000)
    async def chat() -> list[ContextItem]:
        return [ContextItem("Hello " * 10, role="user")]

    first = await chat()
    assert (await recorded(store, first)).tokenizer.margin_percent == 30
    await bill(store, first.context_id, [150] * FEWEST, predicted=100)
    engine: Engine = await runtime_of(store).open()
    await engine.assembler.counters.refresh("my-own-model")
    second = await chat()
    assert (await recorded(store, second)).tokenizer.margin_percent == 50
    assert engine.assembler.counters.tokenizer_for("other").margin_percent == 30


async def test_a_margin_is_read_in_the_background_at_most_once_a_minute(
    store: FeatureStore,
) -> None:
    async with counting(store) as counters:
        counters.counter_for("my-own-model")
        [task] = counters._reading  # noqa: SLF001 - the task has no other name
        counters.counter_for("my-own-model")
        assert counters._reading == {task}  # noqa: SLF001
        await task
        counters.tokenizer_for("my-own-model")
        assert not counters._reading  # noqa: SLF001


@pytest.mark.parametrize(
    ("model", "count", "measured"),
    [("gpt-4o", "local", True), ("my-own-model", "local", True), ("gpt-5", "provider", False)],
)
async def test_only_local_counts_of_messages_are_measured(
    settings: Settings, model: str, count: Count, measured: bool
) -> None:
    async with CountServer().listening() as server:
        store = FeatureStore(settings=settings.replace(tokens=_settings(server.url)))

        @context(store, model=model, count=count)
        async def chat() -> list[ContextItem]:
            return [ContextItem("Hello", role="user")]

        @context(store, model=model)
        async def text() -> str:
            return "Hello"

        async with store:
            for ctx in (await chat(), await text()):
                await ctx.add_outcome(answer="Hi", usage=Usage(input=60, output=1))
            engine: Engine = await runtime_of(store).open()
            pairs = await engine.backends.records.measured(model)
    assert len(pairs) == measured


async def test_a_replay_of_the_past_has_the_margin_of_that_time(store: FeatureStore) -> None:
    @context(store, model="my-own-model", max_tokens=120)
    async def chat() -> list[ContextItem]:
        words = ContextItem("word " * 60, role="user", required=True)
        return [words, ContextItem("more", role="user", priority=1)]

    first = await chat()
    await bill(store, first.context_id, [180] * FEWEST, predicted=100)
    engine: Engine = await runtime_of(store).open()
    await engine.assembler.counters.refresh("my-own-model")
    then = await store.replay(first.context_id, "as_of")
    assert then.matches is True
    with pytest.raises(TokenBudgetError):
        await store.replay(first.context_id, "live")
