"""Failures that were seen in the contexts of similar software, each as a test."""

from __future__ import annotations

import pytest

from headwater import (
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    TokenBudgetError,
    context,
    retriever,
)
from headwater.core.tokens import tokenizer_for
from headwater.testing import ManualClock
from tests.contexts.support import recorded

pytestmark = pytest.mark.both_environments


async def test_the_budget_counts_the_text_that_is_emitted(store: FeatureStore) -> None:
    """The peer's limit of ten emitted twelve tokens and reported ten."""

    @context(store, max_tokens=10, model="gpt-4o", separator="\n\n---\n\n")
    async def made() -> list[ContextItem]:
        return [ContextItem(f"words {n}", priority=-n) for n in range(9)]

    ctx = await made()
    assert ctx.tokens == tokenizer_for("gpt-4o").count(ctx.content) <= 10
    assert ctx.lineage.items_dropped > 0

    @context(store, max_tokens=10, model="gpt-4o")
    async def required() -> list[ContextItem]:
        return [ContextItem(f"words {n}", required=True) for n in range(9)]

    with pytest.raises(TokenBudgetError):
        await required()


async def test_a_cache_hit_has_its_lineage_its_hashes_and_its_record(
    store: FeatureStore, clock: ManualClock
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        return [f"about {query}"]

    @context(store)
    async def made(query: str) -> str:
        return (await search(query))[0].text

    first, second = await made("shoes"), await made("shoes")
    (read,) = second.lineage.retrievers
    assert (read.cache_hit, read.count) == (True, 1)
    assert second.content_hash == first.content_hash
    assert second.context_id != first.context_id
    assert second.record_hash != first.record_hash
    assert (await recorded(store, second)).retrievals[0].cache_hit


async def test_a_cache_hit_does_not_skip_a_strict_sla(
    store: FeatureStore, clock: ManualClock
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str) -> list[str]:
        return [f"about {query}"]

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def made(query: str) -> str:
        return (await search(query))[0].text

    await made("shoes")
    clock.advance("6m")
    with pytest.raises(FreshnessSLAError) as caught:
        await made("shoes")
    assert [(v.kind, v.age_ms) for v in caught.value.violations] == [("retrieval", 360_000)]


async def test_stale_chunks_never_pass_as_guaranteed(
    store: FeatureStore, clock: ManualClock
) -> None:
    @retriever(store, cache_ttl="1d")
    async def search(query: str) -> list[str]:
        return ["the price is 10"]

    @context(store, freshness_sla="1h")
    async def made(query: str) -> list[ContextItem]:
        return [ContextItem(found.text, source=found) for found in await search(query)]

    await made("price")
    clock.advance("2h")
    assert (await made("price")).freshness_status == "degraded"


async def test_positional_arguments_are_in_the_inputs(store: FeatureStore) -> None:
    @context(store)
    async def made(user_id: str, question: str) -> str:
        return question

    inputs = (await recorded(store, await made("u1", "why?"))).inputs
    assert inputs == {"user_id": "u1", "question": "why?"}


async def test_text_of_a_user_reaches_no_attribute(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str, question: str) -> list[ContextItem]:
        return [ContextItem(question), ContextItem.template("plan: {plan}")]

    attack = "{user_id.__class__.__mro__} {plan.__init__.__globals__} %(plan)s ${plan}"
    assert (await made("u1", attack)).content == f"{attack}\n\nplan: "


async def test_an_id_is_a_value_and_never_part_of_a_query(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    await store.publish("visit", "u1", {"plan": "gold"})
    await store.drain()
    attack = "u1' OR '1'='1"
    ctx = await made(attack)
    assert ctx.content == ""
    found = await store.records.find(feature="plan", entity_id=attack)
    assert [summary.context_id for summary in found.contexts] == [ctx.context_id]
