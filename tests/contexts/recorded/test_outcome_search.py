"""Contexts are found and counted by the scores, labels, models and errors of their outcomes."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.outcomes import outcome
from headwater import Context
from headwater.contexts.recorded.outcome_search import sought_score
from headwater.contexts.recorder import ProvenanceIndex, index_of
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError
from headwater.model.callers import Caller, CallerLimits, set_caller
from headwater.ports import OutcomeFilter
from tests.contexts.recorded.shop import Opens, Shop


async def judge(shop: Shop, made: Context, label: str | None = None, **fields: Any) -> None:
    """Store an outcome of a context."""
    log = (await runtime_of(shop.store).open()).backends.records
    if label is not None:
        index = index_of(shop.store.settings) or ProvenanceIndex(await log.index_key())
        fields["label_key"] = index.key("label", label)
    stored = await log.get(str(made.context_id))
    assert stored is not None
    await log.append_outcome(outcome(stored, **fields))


async def judged(shop: Shop) -> list[Context]:
    """Assemble contexts for two users by turns, and judge them."""
    for user_id in ("u1", "u2"):
        await shop.spends(user_id, 5)
    made = [await shop.asks(("u1", "u2")[number % 2]) for number in range(6)]
    for number, each in enumerate(made):
        await judge(shop, each, name="helpful", value=float(number))
        await judge(shop, each, name="safe", flag=number < 2)
        await judge(shop, each, name="tone", label="rude" if number == 4 else "kind")
        await judge(shop, each, model="gpt-6" if number else "gpt-6-mini")
    await judge(shop, made[3], error_type="RateLimitError")
    return made


@pytest.mark.both_environments
async def test_contexts_are_found_listed_and_counted_by_their_outcomes(shop: Shop) -> None:
    made = await judged(shop)
    verbs = shop.store.records

    async def numbers(**filters: Any) -> list[int]:
        found = await verbs.find(**filters)
        if not {"entity_id", "feature"} & filters.keys():
            assert await shop.store.list_contexts(**filters) == found
        assert (await verbs.histogram(**filters)).contexts == len(found.contexts)
        ids = [each.context_id for each in made]
        return [ids.index(each.context_id) for each in found.contexts]

    assert await numbers(score="helpful<3") == [2, 1, 0]
    assert await numbers(score="helpful") == [5, 4, 3, 2, 1, 0]
    assert await numbers(score="helpful >= 4.5") == [5]
    assert await numbers(score="helpful!=3") == [5, 4, 2, 1, 0]
    assert await numbers(score="safe=true") == [1, 0]
    assert await numbers(score="safe != TRUE") == [5, 4, 3, 2]
    assert await numbers(label="rude") == await numbers(label="tone=rude") == [4]
    assert await numbers(label="helpful=rude") == []
    assert await numbers(answer_model="gpt-6-mini") == [0]
    assert await numbers(error="RateLimitError") == [3]
    # Each by another outcome of the context.
    assert await numbers(score="helpful<4", answer_model="gpt-6") == [3, 2, 1]
    assert await numbers(score="helpful<4", label="kind", error="RateLimitError") == [3]
    # Together with inputs and the context's own fields.
    assert await numbers(score="helpful<4", entity="User", entity_id="u1") == [2, 0]
    assert await numbers(score="helpful<4", feature="total", name="support") == [3, 2, 1, 0]
    assert await numbers(score="helpful<4", name="other") == []
    assert await numbers(score="helpful<4", prefix=str(made[1].context_id)) == [1]
    assert await numbers(score="unknown<3") == []


@pytest.mark.both_environments
async def test_pages_by_an_outcome_follow_each_other(shop: Shop) -> None:
    made = await judged(shop)
    for _ in range(3):
        await judge(shop, made[1], name="helpful", value=1.5)
    for oldest_first in (False, True):
        pages: list[list[str]] = []
        cursor = None
        while cursor is not None or not pages:
            page = await shop.store.list_contexts(
                score="helpful<5", limit=2, cursor=cursor, oldest_first=oldest_first
            )
            pages.append([each.context_id for each in page.contexts])
            cursor = page.next_cursor
        expected = [each.context_id for each in made[:5]][:: 1 if oldest_first else -1]
        assert [each for page in pages for each in page] == expected
        assert [len(page) for page in pages] == [2, 2, 1]


async def test_a_limited_key_finds_only_what_it_may_read(shop: Shop) -> None:
    limits = CallerLimits(tenant="u1")
    try:
        set_caller(Caller("limited"))
        made = await judged(shop)
        set_caller(Caller("limited", frozenset({"records"}), limits))
        found = await shop.store.records.find(score="helpful<4")
        counted = await shop.store.records.histogram(score="helpful<4")
    finally:
        set_caller(None)
    assert [each.context_id for each in found.contexts] == [
        made[number].context_id for number in (2, 0)
    ]
    assert counted.contexts == 2


async def test_labels_are_found_with_a_configured_key_and_with_that_of_the_log(
    opens: Opens,
) -> None:
    shop = opens()
    await shop.spends("u1", 5)
    await judge(shop, await shop.asks(), name="tone", label="rude")
    await shop.store.close()
    shop = opens(record={"index_key": "k" * 32})
    await judge(shop, await shop.asks(), name="tone", label="rude")
    assert len((await shop.store.records.find(label="rude")).contexts) == 2
    await shop.store.close()


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        ("helpful", OutcomeFilter(name="helpful")),
        ("helpful<3", OutcomeFilter(name="helpful", operator="<", value=3.0)),
        ("a b >= -1.5e2", OutcomeFilter(name="a b", operator=">=", value=-150.0)),
        ("helpful=0", OutcomeFilter(name="helpful", operator="=", value=0.0)),
        ("helpful=False", OutcomeFilter(name="helpful", flag=False)),
        ("helpful!=false", OutcomeFilter(name="helpful", flag=True)),
    ],
)
def test_a_score_is_a_name_alone_or_compared(score: str, expected: OutcomeFilter) -> None:
    assert sought_score(score) == expected


@pytest.mark.parametrize(
    ("filters", "problem"),
    [
        ({"score": "<3"}, "needs a name and a number; give a name alone"),
        ({"score": "helpful<"}, "needs a name and a number"),
        ({"score": " "}, "needs a name and a number"),
        ({"score": "helpful<true"}, "a flag has no order"),
        ({"score": "helpful=nan"}, "is no number"),
        ({"score": "tone=rude"}, "'rude' is no number; search labels with label="),
        ({"label": "=rude"}, "such as tone=rude"),
        ({"label": "tone="}, "such as tone=rude"),
        ({"name": "support"}, "score, label, answer_model or error"),
    ],
)
async def test_what_cannot_be_sought_is_refused(
    shop: Shop, filters: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await shop.store.records.find(**filters)
