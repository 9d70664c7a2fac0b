"""Forgetting an entity: the outcomes of its contexts lose their texts, in every order."""

from __future__ import annotations

import asyncio

import pytest

from conformance.outcomes import outcome
from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity
from headwater.declarations.runtime import runtime_of
from headwater.ports import StoredOutcome

REASON = "request 12"


@pytest.fixture
def shop(store: FeatureStore) -> FeatureStore:
    """Return a store with an entity, a feature, a context, and another one with it inside."""

    @entity(store)
    class User:
        user_id: str

    @store.feature(User, trigger="named")
    async def name(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["name"])

    @context(store, max_tokens=100)
    async def support(user_id: str) -> list[ContextItem]:
        return [ContextItem.template("About {name}", role="user")]

    @context(store, max_tokens=100)
    async def outer(user_id: str) -> list[ContextItem]:
        inner = await support(user_id)
        return [ContextItem(inner.content, source=inner)]

    return store


async def assembled(shop: FeatureStore, user_id: str, name: str = "support") -> str:
    await shop.set_feature("name", user_id, "Ada")
    return str((await shop.assemble(name, {"user_id": user_id})).context_id)


async def stored(shop: FeatureStore, context_id: str) -> list[StoredOutcome]:
    return await (await runtime_of(shop).open()).backends.records.outcomes([context_id])


@pytest.mark.both_environments
async def test_the_outcomes_of_a_forgotten_entity_lose_their_texts_and_verify(
    shop: FeatureStore,
) -> None:
    mine, inside, other = [
        await assembled(shop, user_id, name)
        for user_id, name in (("7", "support"), ("7", "outer"), ("8", "support"))
    ]
    for context_id in (mine, inside, other):
        await shop.records.add_outcome(context_id, answer="Dear Ada", model="gpt-4o")
        await shop.records.add_outcome(context_id, score="tone", label="kind", explanation="Ada")
    counted = await shop.admin.forget("User", "7", reason=REASON, dry_run=True)
    assert all(each.disclosures != b"[]" for each in await stored(shop, mine))
    report = await shop.admin.forget("User", "7", reason=REASON)
    assert (counted.outcomes, report.outcomes, report.records) == (4, 4, 3)
    assert (await shop.admin.forget("User", "7", reason=REASON)).outcomes == 0
    for context_id in (mine, inside):
        rows = await stored(shop, context_id)
        assert {each.disclosures for each in rows} == {b"[]"}
        assert all(each.is_redacted for each in rows)
        answer, tone = await shop.records.outcomes(context_id)
        assert (answer.response and answer.response.model) == "gpt-4o"
        assert (tone.score and tone.score.name, tone.score and tone.score.explanation) == (
            "tone",
            None,
        )
        assert (await shop.records.verify(context_id)).ok
    assert all(each.disclosures != b"[]" for each in await stored(shop, other))


@pytest.mark.both_environments
async def test_an_outcome_that_was_prepared_before_an_erasure_and_added_after_it_has_no_text(
    shop: FeatureStore,
) -> None:
    context_id = await assembled(shop, "7")
    log = (await runtime_of(shop).open()).backends.records
    record = await log.get(context_id)
    assert record is not None
    late = outcome(record, disclosures=b'[{"pointer":"/actor","salt":"","value":"Ada"}]')
    await shop.admin.forget("User", "7", reason=REASON)
    assert (await log.append_outcome(late)).disclosures == b"[]"
    added = await shop.records.add_outcome(context_id, answer="Dear Ada")
    assert added.response is not None
    assert {each.disclosures for each in await stored(shop, context_id)} == {b"[]"}


@pytest.mark.both_environments
async def test_an_outcome_that_is_added_after_its_record_was_erased_and_before_the_others_are(
    shop: FeatureStore,
) -> None:
    context_id = await assembled(shop, "7")
    await shop.records.add_outcome(context_id, answer="Dear Ada")
    recorded = (await runtime_of(shop).open()).recorded
    record = await recorded.record_of(context_id)
    pointers = [disclosure.pointer for disclosure in record.disclosures]
    await recorded.redact_values(context_id, pointers, REASON, None, everywhere=False)
    await shop.records.add_outcome(context_id, answer="Dear Ada")
    assert await recorded.outcomes.erase(context_id, REASON, None) == 1
    assert [each.disclosures for each in await stored(shop, context_id)] == [b"[]"] * 2


@pytest.mark.both_environments
async def test_no_order_of_outcomes_and_an_erasure_leaves_a_text(shop: FeatureStore) -> None:
    for number in range(5):
        context_id = await assembled(shop, str(number))

        async def add(ref: str = context_id) -> None:
            for _ in range(5):
                await shop.records.add_outcome(ref, answer="Dear Ada")

        erasing = shop.admin.forget("User", str(number), reason=REASON)
        await asyncio.gather(add(), erasing, add())
        rows = await stored(shop, context_id)
        assert [each.disclosures for each in rows] == [b"[]"] * 10
