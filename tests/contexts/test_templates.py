"""Templates in items: features by name, for the entity that the context is about."""

from __future__ import annotations

import pytest

from headwater import ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.errors import ContextFailedError, CycleError, TemplateError, UnknownReferenceError
from headwater.testing import ManualClock
from tests.contexts.support import recorded


async def test_references_are_read_for_the_argument_named_like_the_id(
    store: FeatureStore, user: type
) -> None:
    @context(store)
    async def made(question: str, user_id: str) -> ContextItem:
        return ContextItem.template("{plan} after {visits} visits: {{literally}}")

    await store.publish("visit", "u1", {"plan": "gold"})
    await store.drain()
    ctx = await made("why?", "u1")
    assert ctx.content == "gold after 1 visits: {literally}"
    assert {read.feature: read.value for read in ctx.lineage.features} == {
        "plan": "gold",
        "visits": 1,
    }
    item = (await recorded(store, ctx)).items[0]
    assert (item.content, item.source.kind) == (ctx.content, "template")


async def test_a_feature_in_many_templates_is_read_once(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        return [ContextItem.template(f"{n}: {{visits}} {{visits}}") for n in range(5)]

    ctx = await made("u1")
    assert ctx.content.startswith("0: 0 0\n\n1: 0 0")
    assert [read.feature for read in ctx.lineage.features] == ["visits"]


async def test_a_missing_value_leaves_its_place_empty_and_is_in_the_lineage(
    store: FeatureStore, user: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("Plan: {plan}.")

    ctx = await made("unknown")
    assert ctx.content == "Plan: ."
    (read,) = ctx.lineage.features
    assert (read.value, read.source, read.as_of, read.age_ms) == (None, "missing", None, None)


async def test_features_of_several_entities_each_have_their_own_argument(
    store: FeatureStore, user: type
) -> None:
    @entity(store)
    class Shop:
        shop_id: int

    @feature(entity=Shop)
    def motto(shop_id: int) -> str:
        return f"shop {shop_id}"

    @context(store)
    async def made(user_id: str, shop_id: int) -> ContextItem:
        return ContextItem.template("{visits} at {motto}")

    ctx = await made("u1", 7)
    assert ctx.content == "0 at shop 7"
    assert {(read.entity, read.entity_id) for read in ctx.lineage.features} == {
        ("User", "u1"),
        ("Shop", "7"),
    }


async def test_a_template_without_its_argument_says_which(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(customer: str) -> ContextItem:
        return ContextItem.template("{plan}")

    problem = "needs a parameter 'user_id' that says whose plan"
    with pytest.raises(ContextFailedError, match=problem):
        await made("u1")


async def test_an_unknown_feature_is_named_with_the_nearest_name_and_the_file(
    store: FeatureStore, user: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plans}")

    with pytest.raises(ContextFailedError) as caught:
        await made("u1")
    line = made.function.__code__.co_firstlineno
    assert isinstance(caught.value.raised, UnknownReferenceError)
    assert str(caught.value.raised) == (
        f"{__file__}:{line}: a template of context 'made' refers to unknown feature 'plans'; "
        "did you mean 'plan'?"
    )


async def test_features_that_depend_on_each_other_in_a_circle_are_refused(
    store: FeatureStore, user: type
) -> None:
    @feature(entity=user, template="{other}")
    def one(user_id: str) -> str: ...  # type: ignore[empty-body]

    @feature(entity=user, template="{one}")
    def other(user_id: str) -> str: ...  # type: ignore[empty-body]

    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{one}")

    with pytest.raises(CycleError, match="one → other → one"):
        await made("u1")


async def test_values_are_never_parsed_again(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    await store.publish("visit", "u1", {"plan": "{visits} {0.__class__} {{"})
    await store.drain()
    assert (await made("u1")).content == "{visits} {0.__class__} {{"


@pytest.mark.parametrize("text", ["{user_id.__class__}", "{0}", "{", "}", "{a b}", "{plan!r}"])
async def test_a_template_is_refused_where_it_is_written(text: str) -> None:
    with pytest.raises(TemplateError):
        ContextItem.template(text)


async def test_literal_text_is_never_parsed(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str, question: str) -> list[ContextItem]:
        return [ContextItem(question), ContextItem("{plan}")]

    ctx = await made("u1", "{visits} {user_id.__class__} {unclosed")
    assert ctx.content == "{visits} {user_id.__class__} {unclosed\n\n{plan}"
    assert ctx.lineage.features == []


async def test_a_template_is_as_old_as_its_oldest_part(
    store: FeatureStore, clock: ManualClock, user: type
) -> None:
    @feature(entity=user, trigger="move")
    async def city(user_id: str, event: ServiceEvent) -> str:
        return "Rome"

    @context(store, freshness_sla="5m")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plan} in {city}")

    await store.publish("visit", "u1", {"plan": "gold"})
    await store.drain()
    clock.advance("6m")
    await store.publish("move", "u1")
    await store.drain()
    ctx = await made("u1")
    assert [(v.name, v.age_ms) for v in ctx.freshness_violations] == [("plan", 360_000)]
