"""Outcomes in privacy mode, in replays, and of contexts of messages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headwater import Context, ContextItem, context
from headwater.declarations.runtime import runtime_of
from headwater.errors import ReplayWriteError
from headwater.ports import StoredOutcome
from headwater.store.verbs.records import SoughtContexts
from tests.contexts.recorded.shop import Opens, Shop


async def rows(shop: Shop, made: Context) -> Sequence[StoredOutcome]:
    log = (await runtime_of(shop.store).open()).backends.records
    return await log.outcomes([str(made.context_id)])


@pytest.mark.both_environments
async def test_without_content_an_outcome_has_no_text_and_is_found_by_its_label(
    opens: Opens,
) -> None:
    shop = opens(record={"include_content": False})
    await shop.spends("u1", 5)
    made = await shop.asks()
    await made.add_outcome(answer="Dear Ann", model="gpt-4o", actor="ann")
    await made.add_outcome(score="tone", label="friendly", explanation="Ann is named")
    answer, tone = await rows(shop, made)
    assert answer.disclosures == tone.disclosures == b"[]"
    for secret in (b"Ann", b"ann", b"friendly"):
        assert secret not in answer.core + tone.core
    found = await shop.store.records.find(label="tone=friendly", answer_model="gpt-4o")
    assert [each.context_id for each in found.contexts] == [made.context_id]
    read = await shop.store.records.outcomes(str(made.context_id))
    assert [each.actor for each in read] == [None, None]
    assert (await shop.store.records.verify(str(made.context_id))).ok


async def test_an_outcome_of_a_context_of_before_privacy_mode_keeps_its_text_and_later_ones_do_not(
    opens: Opens,
) -> None:
    shop = opens()
    await shop.spends("u1", 5)
    made = await shop.asks()
    await made.add_outcome(answer="Dear Ann")
    await shop.store.close()
    shop = opens(record={"include_content": False})
    await shop.store.records.add_outcome(str(made.context_id), answer="Dear Ann")
    first, second = await rows(shop, made)
    assert (b"Dear Ann" in first.disclosures, second.disclosures) == (True, b"[]")


async def test_a_replay_adds_no_outcome(shop: Shop) -> None:
    @context(shop.store)
    async def judged(user_id: str) -> str:
        inner = await shop.support(user_id)
        await inner.add_outcome(score="helpful", value=1)
        return str(inner.content)

    await shop.spends("u1", 5)
    made = await judged("u1")
    (page,) = (await shop.store.records.find(score="helpful")).contexts
    for mode in ("live", "as_of"):
        with pytest.raises(ReplayWriteError, match="add_outcome"):
            await shop.store.records.replay(str(made.context_id), mode)
    assert len(await shop.store.records.outcomes(page.context_id)) == 1


@pytest.mark.both_environments
async def test_a_context_of_messages_is_found_by_its_entity_and_its_score(shop: Shop) -> None:
    @context(shop.store, model="gpt-4o")
    async def chat(user_id: str) -> list[ContextItem]:
        return [
            ContextItem.template("The customer is {name}.", role="system"),
            ContextItem("Where is my parcel?", role="user"),
            ContextItem.tool_call("find", {"of": user_id}, id="c1"),
            ContextItem.tool_result("c1", {"at": "the depot"}),
        ]

    await shop.spends("u1", 5)
    made = await chat("u1")
    await made.add_outcome(answer="At the depot.", model="gpt-4o")
    await made.add_outcome(score="helpful", value=2)
    sought: list[SoughtContexts] = [
        {"entity": "User", "entity_id": "u1"},
        {"feature": "name", "score": "helpful<3"},
        {"score": "helpful<3", "answer_model": "gpt-4o"},
    ]
    for filters in sought:
        found = await shop.store.records.find(**filters)
        assert [each.context_id for each in found.contexts] == [made.context_id]
