"""Templates in items: features by name, for the entity that the context is about."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from headwater import (
    Chunk,
    ContextItem,
    FeatureStore,
    Index,
    ServiceEvent,
    context,
    entity,
    feature,
    retriever,
)
from headwater.errors import (
    ContextFailedError,
    CycleError,
    FeatureFailedError,
    FormatError,
    InvalidInputError,
    RetrieverFailedError,
    TemplateError,
    UnknownReferenceError,
)
from headwater.records.redaction import also_disclosed
from headwater.testing import ManualClock
from tests.contexts.recorded.test_explanation import words
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


@pytest.fixture
def account(store: FeatureStore, user: type) -> type:
    """Features of the types that formats are for, which have no values for unknown users."""

    @feature(entity=user)
    def balance(user_id: str) -> Decimal | None:
        return Decimal("12345.678") if user_id == "ada" else None

    @feature(entity=user)
    def churn_risk(user_id: str) -> float:
        return 0.4237

    @feature(entity=user)
    def joined(user_id: str) -> datetime | None:
        return datetime(2024, 2, 29, 23, 30, tzinfo=UTC) if user_id == "ada" else None

    @feature(entity=user)
    def born(user_id: str) -> date | None:
        return date(1815, 12, 10) if user_id == "ada" else None

    @feature(entity=user, template="{balance:,.0f|no money} since {joined:%Y|never}")
    def state(user_id: str) -> str: ...  # type: ignore[empty-body]

    return user


@pytest.mark.both_environments
async def test_values_are_formatted_and_each_span_names_its_feature(
    store: FeatureStore, account: type
) -> None:
    source = "{churn_risk:.0%} of {balance:,.2f} since {joined:%d %b %Y}: {balance}, {plan|no plan}"

    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        return [
            ContextItem.template(source),
            ContextItem.template("<{state}> <{state:>30}>"),
        ]

    ctx = await made("ada")
    assert ctx.content == (
        "42% of 12,345.68 since 29 Feb 2024: 12345.678, no plan\n\n"
        "<12,346 since 2024> <             12,346 since 2024>"
    )
    trace = await store.records.explain(ctx.context_id)
    numbers, texts = trace.items
    assert numbers.source_ref == source
    assert [(name, text) for name, text, _ in words(numbers)] == [
        ("churn_risk", "42%"),
        ("balance", "12,345.68"),
        ("joined", "29 Feb 2024"),
        ("balance", "12345.678"),
        ("plan", "no plan"),
    ]
    assert [(name, text) for name, text, _ in words(texts)] == [
        ("state", "12,346 since 2024"),
        ("balance", "12,346"),
        ("joined", "2024"),
        ("state", " " * 13 + "12,346 since 2024"),
    ]
    again = await store.replay(ctx.context_id, "as_of")
    assert again.content == ctx.content


async def test_a_template_feature_with_fallbacks_has_a_value_without_its_inputs(
    store: FeatureStore, account: type
) -> None:
    assert await store.get_feature("state", "bob") == "no money since never"


async def test_a_format_that_does_not_fit_is_refused_when_a_template_feature_is_declared(
    store: FeatureStore, account: type
) -> None:
    @feature(entity=account, template="{churn_risk:%Y}")
    def wrong(user_id: str) -> str: ...  # type: ignore[empty-body]

    problem = r"feature 'wrong': the format of \{churn_risk:%Y\} .* which is float: it is for dates"
    with pytest.raises(TemplateError, match=problem):
        await store.get_feature("churn_risk", "ada")


async def test_a_value_that_does_not_fit_its_format_fails_its_feature_or_context(
    store: FeatureStore, account: type
) -> None:
    @feature(entity=account, template="{balance:%Y}")
    def wrong(user_id: str) -> str: ...  # type: ignore[empty-body]

    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("{plan|} {balance:%Y}")

    problem = r"the format of \{balance:%Y\} in a template does not fit the value, which is Decimal"
    with pytest.raises(FeatureFailedError, match=problem):
        await store.get_feature("wrong", "ada")
    with pytest.raises(ContextFailedError, match=problem) as caught:
        await made("ada")
    assert isinstance(caught.value.raised, FormatError)
    assert (await made("bob")).content == " "


async def test_formats_in_queries_and_filters_are_written_and_checked(
    store: FeatureStore, account: type
) -> None:
    Index(store, "docs", embedder="lexical")

    @retriever(store, index="docs", query="{risk:.0%}", filters={"n": "{risk}", "t": "{risk:.1f}"})
    def found(user_id: str, risk: float) -> list[Chunk]: ...  # type: ignore[empty-body]

    assert found.definition.search is not None
    query, options = found.definition.search.resolved({"risk": 0.25})
    assert (query, options.filters) == ("25%", {"n": 0.25, "t": "0.2"})
    with pytest.raises(RetrieverFailedError, match=r"the format of \{risk:.0%\}"):
        await found("ada", "high")  # type: ignore[arg-type]


async def test_a_format_in_a_query_that_does_not_fit_is_refused_when_the_store_is_opened(
    store: FeatureStore, account: type
) -> None:
    Index(store, "docs", embedder="lexical")

    @retriever(store, index="docs", query="{churn_risk:%Y}")
    def wrong(user_id: str) -> list[Chunk]: ...  # type: ignore[empty-body]

    with pytest.raises(TemplateError, match=r"retriever 'wrong': the format of \{churn_risk:%Y\}"):
        await wrong("ada")


@pytest.mark.both_environments
async def test_an_item_is_left_out_as_a_whole_if_a_feature_is_missing(
    store: FeatureStore, clock: ManualClock, account: type
) -> None:
    @context(store, max_tokens=9, model="gpt-4o", freshness_sla="5m")
    async def made(user_id: str) -> list[ContextItem]:
        return [
            ContextItem("Be kind."),
            ContextItem.template(
                "{visits} visits and the plan {plan} with a text that does not fit",
                when_missing="drop",
                required=True,
            ),
            ContextItem.template("Balance: {balance|unknown}", when_missing="drop"),
        ]

    ctx = await made("bob")
    assert ctx.content == "Be kind.\n\nBalance: unknown"
    assert ctx.freshness_status == "guaranteed"  # the missing plan is not in the text
    used = {read.feature: read.used for read in ctx.lineage.features}
    assert used == {"visits": False, "plan": False, "balance": True}
    left_out = ctx.lineage.items[1]
    assert (left_out.decision, left_out.reason) == ("dropped", "missing")
    assert (left_out.tokens, left_out.emitted_tokens, left_out.short_by) == (0, 0, 0)
    assert ctx.lineage.items_dropped == 1
    assert ctx.meta["warnings"] == []
    trace = await store.records.explain(ctx.context_id)
    assert trace.items[1].why == "left out, because a feature in its template has no value"
    assert trace.items[1].source_ref is not None
    assert (trace.items[1].emitted, trace.items[1].spans) == (None, [])
    assert (await store.records.verify(ctx.context_id)).ok
    again = await store.replay(ctx.context_id, "reassemble")
    assert again.matches
    assert again.differences is not None
    assert not any(item.flipped for item in again.differences.items)


async def test_only_drop_and_empty_are_ways_to_treat_a_missing_value() -> None:
    with pytest.raises(InvalidInputError, match="'empty' or 'drop', not 'skip'"):
        ContextItem.template("{plan}", when_missing="skip")  # type: ignore[arg-type]


async def test_a_formatted_value_is_found_where_its_feature_is_redacted(
    store: FeatureStore, account: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("They own {balance:,.2f}.")

    ctx = await made("ada")
    record = await store.records.get(ctx.context_id)
    assert {"/items/0/content", "/output/content"} <= set(
        also_disclosed(record, "/features/0/value")
    )


async def test_a_message_whose_feature_is_missing_is_left_out(
    store: FeatureStore, account: type
) -> None:
    @context(store, max_tokens=100, model="gpt-4o")
    async def made(user_id: str) -> list[ContextItem]:
        return [
            ContextItem("Be kind.", role="system"),
            ContextItem.template("Plan: {plan}", role="assistant", when_missing="drop", cache=True),
            ContextItem("Who am I?", role="user"),
        ]

    ctx = await made("bob")
    assert ctx.messages is not None
    assert [message.role for message in ctx.messages] == ["system", "user"]
    assert ctx.lineage.items[1].reason == "missing"
    assert (await store.records.verify(ctx.context_id)).ok
    assert (await store.replay(ctx.context_id, "reassemble")).matches
