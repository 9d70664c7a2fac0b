"""Budgets that the count of the whole request decides: by the provider, or by a chat template."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headwater import Context, ContextItem, FeatureStore, TokenBudgetError, context
from headwater.settings.schema import Settings
from tests.contexts.support import recorded
from tests.messages.test_chat_templates import folder
from tests.retrieval.embeddings.provider_server import KEY, ProviderServer, Reply, Seen, error

PER_MESSAGE = 50


class CountServer(ProviderServer):
    """Anthropic's endpoint, which counts 50 tokens for each message."""

    async def _reply(self, seen: Seen) -> Reply | None:
        if self.faults:
            return await super()._reply(seen)
        body: Any = seen.body
        tokens = PER_MESSAGE * len(body["messages"])
        return Reply(200, msgspec.json.encode({"input_tokens": tokens}))


@pytest.fixture
async def server() -> AsyncIterator[ProviderServer]:
    async with CountServer().listening() as listening:
        yield listening


@pytest.fixture
async def asking(settings: Settings, server: ProviderServer) -> AsyncIterator[FeatureStore]:
    tokens = {"anthropic_url": server.url, "anthropic_api_key": KEY}
    store = FeatureStore(settings=settings.replace(tokens=tokens))
    yield store
    await store.close()


async def chat(
    store: FeatureStore, max_tokens: int | None, *, required: int = 1, **options: Any
) -> Context:
    """Assemble ten messages of falling priority, in the order of a conversation."""

    @context(store, max_tokens=max_tokens, **{"model": "claude-opus-5"} | options)
    async def talk() -> list[ContextItem]:
        return [
            ContextItem(
                f"word {turn}",
                role="user" if turn % 2 else "assistant",
                turn=turn,
                priority=turn,
                required=turn > 9 - required,
            )
            for turn in range(10)
        ]

    return await talk()


async def test_without_asking_for_it_nothing_is_sent(
    asking: FeatureStore, server: ProviderServer
) -> None:
    made = await chat(asking, 400)
    assert (server.seen, made.meta["grade"]) == ([], "estimate")


async def test_a_request_within_the_budget_is_asked_about_once(
    asking: FeatureStore, server: ProviderServer
) -> None:
    made = await chat(asking, 600, count="provider")
    assert (made.tokens, made.meta["grade"], made.meta["count_source"]) == (
        500,
        "provider",
        "anthropic",
    )
    assert len(server.seen) == 1


async def test_the_lowest_items_are_taken_back_if_the_provider_counts_more(
    asking: FeatureStore, server: ProviderServer
) -> None:
    made = await chat(asking, 320, count="provider")
    assert made.tokens == 300
    assert [message.text for message in made.messages] == [f"word {turn}" for turn in range(4, 10)]
    assert len(server.seen) <= 3
    assert (await asking.replay(made.context_id, "reassemble")).matches
    core = await recorded(asking, made)
    assert core.tokenizer.margin_percent == 0


async def test_required_items_over_the_provider_s_count_are_refused(asking: FeatureStore) -> None:
    with pytest.raises(TokenBudgetError) as refused:
        await chat(asking, 320, required=10, count="provider")
    assert refused.value.needed >= 500


async def test_required_items_may_be_flagged(asking: FeatureStore) -> None:
    made = await chat(asking, 320, required=10, count="provider", on_overflow="flag")
    assert (made.tokens, made.meta["overflow"]) == (500, True)


async def test_a_provider_that_does_not_answer_leaves_the_estimate_and_a_warning(
    asking: FeatureStore, server: ProviderServer
) -> None:
    server.faults += [error(500)] * 3
    made = await chat(asking, 600, count="provider")
    assert made.meta["grade"] == "estimate"
    assert "anthropic did not count the tokens, so they are estimated" in made.meta["warnings"]


async def test_an_open_model_is_counted_by_its_chat_template(
    settings: Settings, tmp_path: Path
) -> None:
    models = {"tiny": {"folder": str(folder(tmp_path))}}
    store = FeatureStore(settings=settings.replace(tokens={"models": models}))
    try:
        whole = await chat(store, None, model="tiny")
        assert whole.meta["grade"] == "exact"
        less = await chat_again(store, whole.tokens - 1)
        assert less.tokens < whole.tokens
        assert 8 <= len(less.messages) <= 9
    finally:
        await store.close()


async def chat_again(store: FeatureStore, max_tokens: int) -> Context:
    return await chat(store, max_tokens, model="tiny", name="again")
