"""The assistant knows its pages, its customer and the conversation: `pytest` in this folder."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest
from support import answer, pages, store

import headwater
from headwater import Document
from headwater.testing import ModelServer, temporary

HELP = Path(__file__).parent / "help"


@pytest.fixture
def model() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
async def client(model: ModelServer) -> AsyncIterator[openai.AsyncOpenAI]:
    """Yield a client whose answers are recorded, of a store with the help pages."""
    raw = openai.AsyncOpenAI(base_url=f"{model.url}/v1", api_key="none")
    async with temporary(store), headwater.wrap(raw) as recorded:
        documents = (Document(file.name, file.read_text()) for file in HELP.glob("*.md"))
        await store.indexes.load(pages.name, documents)
        yield recorded


async def test_the_answer_comes_from_a_help_page_and_is_recorded(
    client: openai.AsyncOpenAI,
) -> None:
    ctx, text = await answer(client, "ada", "How long is the warranty of a saw?")
    assert text == "The warranty of a saw is three years."
    (outcome,) = await store.records.outcomes(ctx.context_id)
    assert outcome.response is not None
    assert outcome.response.usage is not None
    assert outcome.response.messages[0].text == text
    assert outcome.predicted == outcome.response.usage.input
    assert (await store.records.verify(ctx.context_id, expect=ctx.record_hash)).ok


async def test_the_model_is_given_the_purchase_and_the_last_turn(
    client: openai.AsyncOpenAI, model: ModelServer
) -> None:
    await store.publish("purchase", "ada", {"product": "a saw", "amount": 80})
    await store.drain()
    _, first = await answer(client, "ada", "How long does a parcel take?")
    await answer(client, "ada", "And to an island?")
    messages = model.requests[-1]["messages"]
    assert "The customer last bought: a saw. Spent in a year: 80.00 EUR." in messages[0]["content"]
    assert {"role": "assistant", "content": first} in messages


async def test_old_turns_are_dropped_when_the_budget_is_full(client: openai.AsyncOpenAI) -> None:
    for question in ("Where is my parcel?", "Is it in the country?", "Can I return a saw?"):
        ctx, _ = await answer(client, "ada", question)
        assert ctx.tokens <= 190
    assert ctx.lineage.items_dropped > 0
    assert "Where is my parcel?" not in ctx.content
