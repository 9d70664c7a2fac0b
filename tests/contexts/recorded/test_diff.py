"""The difference between two contexts."""

from __future__ import annotations

import pytest

from headwater import Chunk, ContextItem, context, retriever
from headwater.model.contexts import ContextDiff, ItemDiff
from headwater.testing import ManualClock
from tests.contexts.recorded.shop import Opens, Shop


def item(diff: ContextDiff, beginning: str) -> ItemDiff:
    return next(each for each in diff.items if each.identity.startswith(beginning))


async def test_a_context_and_itself_differ_in_nothing(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    diff = await shop.store.records.diff(made.context_id, str(made.record_hash))
    assert (diff.same_content, diff.tokens_delta, diff.text) == (True, 0, "")
    assert {each.change for each in diff.items} == {"same"}
    assert {each.change for each in diff.features} == {"same"}
    assert {each.change for each in diff.results} == {"same"}
    assert (diff.inputs, diff.rules) == ([], [])


async def test_values_and_ages_of_features_and_the_text_that_follows(
    shop: Shop, clock: ManualClock
) -> None:
    await shop.spends("u1", 5)
    clock.advance("1m")
    one = await shop.asks()
    await shop.store.set_feature("total", "u1", 7)
    clock.advance("2m")
    two = await shop.asks()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    features = {each.feature: each for each in diff.features}
    total, name = features["total"], features["name"]
    assert total.before is not None
    assert total.after is not None
    assert (total.change, total.before.value, total.after.value) == ("changed", 5, 7)
    assert (total.before.age_ms, total.after.age_ms) == (60_000, 120_000)
    assert name.before is not None
    assert name.after is not None
    assert (name.change, name.before.age_ms, name.after.age_ms) == ("same", 60_000, 180_000)
    spent = item(diff, "Spent so far: 7")
    assert (spent.change, spent.flipped) == ("changed", False)
    assert diff.text is not None
    assert "-Spent so far: 5\n+Spent so far: 7" in diff.text
    assert not diff.same_content


async def test_items_are_known_by_their_source_and_ranks_move(shop: Shop) -> None:
    await shop.spends("u1", 5)
    one = await shop.asks()
    shop.documents = [
        shop.documents[1],
        Chunk(text="Rewritten.", id="d1", score=0.4),
        Chunk(text="New."),
    ]
    two = await shop.asks()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    rewritten = item(diff, "retrieval d1")
    assert rewritten.before is not None
    assert rewritten.after is not None
    assert (rewritten.change, rewritten.before.place, rewritten.after.place) == ("changed", 3, 4)
    assert rewritten.tokens_delta < 0
    moved = item(diff, "retrieval d2")
    assert moved.before is not None
    assert moved.after is not None
    assert (moved.change, moved.before.place, moved.after.place) == ("same", 4, 3)
    assert (item(diff, "New.").change, item(diff, "New.").before) == ("added", None)
    ranks = {
        each.id: (each.before and each.before.rank, each.after and each.after.rank)
        for each in diff.results
    }
    assert ranks == {"d1": (1, 2), "d2": (2, 1), None: (None, 3)}
    assert {each.id: each.change for each in diff.results} == {
        "d1": "changed",
        "d2": "changed",
        None: "added",
    }


async def test_a_result_of_another_score_has_changed(shop: Shop) -> None:
    one = await shop.asks()
    shop.documents = [Chunk(text=shop.documents[0].text, id="d1", score=0.8), shop.documents[1]]
    two = await shop.asks()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert [(each.id, each.change) for each in diff.results] == [("d1", "changed"), ("d2", "same")]


async def test_searches_are_paired_by_their_arguments_and_not_by_their_order(
    shop: Shop,
) -> None:
    order = ["a", "b"]

    @retriever(shop.store)
    async def look_up(query: str) -> list[Chunk]:
        return [Chunk(text=f"about {query}", id=f"id-{query}")]

    @context(shop.store)
    async def asks() -> str:
        return "".join([chunk.text for query in order for chunk in await look_up(query)])

    one = await asks()
    order.reverse()
    two = await asks()
    order.remove("b")
    three = await asks()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert {(each.id, each.change) for each in diff.results} == {("id-a", "same"), ("id-b", "same")}
    diff = await shop.store.records.diff(two.context_id, three.context_id)
    changes = {(each.id, each.change) for each in diff.results}
    assert changes == {("id-a", "same"), ("id-b", "removed")}


async def test_of_several_items_with_one_source_each_is_compared_with_itself(shop: Shop) -> None:
    texts = ["alpha", "beta"]

    @context(shop.store)
    async def asks() -> list[ContextItem]:
        return [ContextItem(text, source="manual") for text in texts]

    one = await asks()
    texts.remove("alpha")
    two = await asks()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert [(each.before and each.before.place, each.change) for each in diff.items] == [
        (0, "removed"),
        (1, "same"),
    ]


async def test_decisions_flip_under_another_budget(shop: Shop) -> None:
    await shop.spends("u1", 5)
    one = await shop.asks()
    two = await shop.support.options(max_tokens=20)("u1", "Where is it?")
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    flipped = {each.identity for each in diff.items if each.flipped}
    assert "retrieval d2" in flipped
    assert "You are a support agent." not in flipped
    assert diff.tokens_delta == two.tokens - one.tokens
    assert [(rule.name, rule.before, rule.after) for rule in diff.rules] == [
        ("max_tokens", 60, 20),
        ("set_by_call", (), ("max_tokens",)),
    ]


async def test_other_inputs_are_named(shop: Shop) -> None:
    one, two = await shop.plain("a"), await shop.plain("b")
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    (text,) = diff.inputs
    assert (text.name, text.change, text.before, text.after) == ("text", "changed", "a", "b")


async def test_another_interaction_is_named(shop: Shop) -> None:
    one = await shop.plain.options(interaction_ref={"call_id": "c1", "turn": 1})("a")
    two = await shop.plain.options(interaction_ref={"call_id": "c2", "turn": 1})("a")
    none = await shop.plain("a")
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    (call,) = diff.interaction_ref
    assert (call.name, call.change, call.before, call.after) == ("call_id", "changed", "c1", "c2")
    diff = await shop.store.records.diff(none.context_id, two.context_id)
    assert [(each.name, each.change) for each in diff.interaction_ref] == [
        ("call_id", "added"),
        ("turn", "added"),
    ]
    await shop.store.records.redact(one.context_id, "/interaction_ref", reason="asked to")
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert [(each.name, each.change) for each in diff.interaction_ref] == [
        ("interaction_ref", "unknown")
    ]


async def test_contexts_of_two_entities_have_features_of_their_own(shop: Shop) -> None:
    await shop.spends("u1", 5)
    await shop.spends("u2", 5)
    diff = await shop.store.records.diff(
        (await shop.asks("u1")).context_id, (await shop.asks("u2")).context_id
    )
    changes = {(each.feature, each.entity_id): each.change for each in diff.features}
    assert changes == {
        ("total", "u1"): "removed",
        ("name", "u1"): "removed",
        ("total", "u2"): "added",
        ("name", "u2"): "added",
    }


async def test_a_withheld_value_is_unknown_and_not_different(opens: Opens) -> None:
    full = opens()
    await full.spends("u1", 5)
    one = await full.asks()
    two = await opens(record={"include_content": False}).asks()
    diff = await full.store.records.diff(one.context_id, two.context_id)
    assert diff.same_content
    assert diff.text is None
    assert {each.change for each in diff.items} == {"unknown"}
    assert {each.change for each in diff.features} == {"unknown"}
    assert {each.change for each in diff.inputs} == {"unknown"}
    assert all(each.after is not None and each.after.value is None for each in diff.features)


async def test_a_private_record_and_itself_differ_in_nothing(opens: Opens) -> None:
    shop = opens(record={"include_content": False})
    await shop.spends("u1", 5)
    one, two = await shop.asks(), await shop.asks()
    diff = await shop.store.records.diff(one.context_id, one.context_id)
    for part in (diff.items, diff.features, diff.results):
        assert {each.change for each in part} == {"same"}
    assert (diff.inputs, diff.rules) == ([], [])
    other = await shop.store.records.diff(one.context_id, two.context_id)
    assert {each.change for each in other.inputs} == {"unknown"}


async def test_the_text_of_an_inner_context_is_known_by_its_name(shop: Shop) -> None:
    @context(shop.store)
    async def page(*texts: str) -> list[ContextItem]:
        inner = [await shop.plain(text) for text in texts]
        lead = await shop.support("u1")
        return [ContextItem(each.content, source=each) for each in (lead, *inner)]

    await shop.spends("u1", 5)
    one = await page("a", "b")
    again = await page("a", "b")
    same = await shop.store.records.diff(one.context_id, again.context_id)
    assert [(each.identity, each.change) for each in same.items] == [
        ("context support", "same"),
        ("context plain", "same"),
        ("context plain", "same"),
    ]
    await shop.spends("u1", 6)
    two = await page("b", "c", "d")
    other = await shop.store.records.diff(one.context_id, two.context_id)
    assert [
        (each.identity, each.change, each.before and each.before.place) for each in other.items
    ] == [
        ("context support", "changed", 0),
        ("context plain", "changed", 1),
        ("context plain", "same", 2),
        ("context plain", "added", None),
    ]


async def test_a_replaced_inner_context_is_removed_and_added(shop: Shop) -> None:
    leads = [shop.outer, shop.support]

    @context(shop.store)
    async def page() -> list[ContextItem]:
        lead = await leads.pop()("u1")
        return [ContextItem(lead.content, source=lead)]

    one, two = await page(), await page()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert [(each.identity, each.change) for each in diff.items] == [
        ("context support", "removed"),
        ("context outer", "added"),
    ]


async def test_items_from_equal_external_contexts_are_the_same(shop: Shop) -> None:
    given = [await shop.plain("a"), await shop.plain("a")]

    @context(shop.store)
    async def page() -> list[ContextItem]:
        return [ContextItem("a", source=given.pop())]

    one, two = await page(), await page()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert [each.change for each in diff.items] == ["same"]


async def test_an_item_that_was_cut_at_another_place_has_changed(shop: Shop) -> None:
    @context(shop.store, max_tokens=40)
    def long() -> list[ContextItem]:
        return [ContextItem("word " * 60, truncate=True)]

    one, two = await long(), await long.options(max_tokens=30)()
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    (cut,) = diff.items
    assert (cut.change, cut.flipped, cut.tokens_delta) == (
        "changed",
        False,
        two.tokens - one.tokens,
    )


async def test_an_item_of_one_context_alone_has_not_flipped(shop: Shop) -> None:
    @context(shop.store)
    def listing(*texts: str) -> list[ContextItem]:
        return [ContextItem(text, priority=place) for place, text in enumerate(texts)]

    one, two = await listing("a"), await listing("a", "b")
    for before, after, change in ((one, two, "added"), (two, one, "removed")):
        diff = await shop.store.records.diff(before.context_id, after.context_id)
        assert (item(diff, "b").change, item(diff, "b").flipped) == (change, False)


@pytest.mark.parametrize("other", ["a\nb\n", "a\r\nb", "a\u2028b", "a\x0cb", "a\rb"])
async def test_texts_that_differ_in_line_breaks_alone_differ(shop: Shop, other: str) -> None:
    one, two = await shop.plain("a\nb"), await shop.plain(other)
    diff = await shop.store.records.diff(one.context_id, two.context_id)
    assert not diff.same_content
    assert diff.text
    same = await shop.store.records.diff(two.context_id, two.context_id)
    assert same.text == ""
