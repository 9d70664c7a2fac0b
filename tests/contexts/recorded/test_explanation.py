"""The explanation of a context: spans of templates, widths of items, and the missing budget."""

from __future__ import annotations

import msgspec
import pytest

from headwater import (
    Context,
    ContextItem,
    ContextTrace,
    FeatureStore,
    ServiceEvent,
    context,
    entity,
    feature,
)
from headwater.contexts.recorded.service import explained
from headwater.core.templates import Template, parse_template
from headwater.model.lineage import ItemTrace
from headwater.records.sealing import open_core


@pytest.fixture
def blurb(store: FeatureStore) -> type:
    """An entity with a template of a template."""

    @entity(store)
    class User:
        user_id: str

    @feature(entity=User, trigger="visit")
    async def plan(user_id: str, event: ServiceEvent) -> str:
        return str(event.payload["plan"])

    @feature(entity=User, trigger="visit", default=0)
    async def visits(user_id: str, event: ServiceEvent) -> int:
        return 3

    @feature(entity=User, template="{plan} ({visits})")
    def badge(user_id: str) -> str:
        return ""

    @feature(entity=User, template="{{{badge}}} after {visits} visits")
    def summary(user_id: str) -> str:
        return ""

    return User


async def visit(store: FeatureStore, user_id: str, plan: str) -> None:
    await store.publish("visit", user_id, {"plan": plan})
    await store.drain()


async def traced(store: FeatureStore, made: Context) -> ContextTrace:
    return await store.records.explain(made.context_id)


def words(item: ItemTrace) -> list[tuple[str, str, int | None]]:
    """Return the name, the text and the input of each span."""
    text = item.content if item.emitted is None else item.emitted
    assert text is not None
    return [(span.feature, text[span.start : span.end], span.input) for span in item.spans]


@pytest.mark.both_environments
async def test_spans_name_the_feature_behind_each_word_of_a_template(
    store: FeatureStore, blurb: type
) -> None:
    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        return [
            ContextItem("gold 3"),
            ContextItem.template("{{x}} 🌊 {plan}, {visits}{plan}!"),
            ContextItem.template("no reference"),
        ]

    await visit(store, "ada", "gölden 🌊 3")
    trace = await traced(store, await made("ada"))
    literal, template, plain = trace.items
    assert (literal.spans, literal.reads, literal.source_ref) == ([], [], None)
    assert template.source_ref == "{{x}} 🌊 {plan}, {visits}{plan}!"
    assert words(template) == [
        ("plan", "gölden 🌊 3", None),
        ("visits", "3", None),
        ("plan", "gölden 🌊 3", None),
    ]
    assert [trace.features[place].feature for place in template.reads] == ["plan", "visits"]
    assert (plain.source_kind, list(plain.spans), list(plain.reads)) == ("template", [], [])


async def test_a_template_inside_a_value_is_followed_to_its_inputs(
    store: FeatureStore, blurb: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("Who asks: {summary}.")

    await visit(store, "ada", "gold")
    trace = await traced(store, await made("ada"))
    (item,), (read,) = trace.items, trace.features
    named = [(name, text) for name, text, _ in words(item)]
    assert named == [
        ("summary", "{gold (3)} after 3 visits"),
        ("badge", "gold (3)"),
        ("visits", "3"),
        ("plan", "gold"),
        ("visits", "3"),
    ]
    for span in item.spans[1:]:
        assert span.input is not None
        assert (span.read, read.inputs[span.input].feature) == (0, span.feature)


async def test_spans_of_a_shortened_item_end_with_its_text(
    store: FeatureStore, blurb: type
) -> None:
    @context(store, max_tokens=8, model="gpt-4o")
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("He said: {plan} {visits}", truncate=True)

    await visit(store, "ada", "one two three four five six seven")
    (item,) = (await traced(store, await made("ada"))).items
    assert item.decision == "truncated"
    assert item.emitted is not None
    ((name, text, _),) = words(item)
    assert name == "plan"
    assert f"He said: {text} …" == item.emitted


async def test_a_value_read_for_another_entity_is_not_the_templates(
    store: FeatureStore, blurb: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        for other in ("ada", "bob"):
            await store.get_feature("plan", other)
        return ContextItem.template("{plan}")

    await visit(store, "ada", "gold")
    await visit(store, "bob", "gold")
    trace = await traced(store, await made("ada"))
    (place,) = trace.items[0].reads
    assert trace.features[place].entity_id == "ada"


async def test_in_doubt_about_the_entity_nothing_is_claimed(
    store: FeatureStore, blurb: type
) -> None:
    @context(store)
    async def made(user_id: str, friend: str) -> ContextItem:
        await store.get_feature("plan", friend)
        return ContextItem.template("{plan}")

    await visit(store, "ada", "gold")
    await visit(store, "bob", "gold")
    (item,) = (await traced(store, await made("ada", "bob"))).items
    assert (list(item.reads), list(item.spans)) == ([], [])


async def test_nothing_is_claimed_about_redacted_values_and_edited_templates(
    store: FeatureStore, blurb: type
) -> None:
    @context(store)
    async def made(user_id: str) -> ContextItem:
        return ContextItem.template("Who asks: {summary}.")

    await visit(store, "ada", "gold")
    ctx = await made("ada")
    record = await store.records.get(ctx.context_id)
    core = open_core(record)
    edited = {"summary": parse_template("{badge} after {visits} visits")}
    (item,) = explained(record, core, edited).items
    assert [span.feature for span in item.spans] == ["summary"]
    await store.records.redact(ctx.context_id, "/features/0/value", reason="asked to")
    (item,) = (await traced(store, ctx)).items
    assert (list(item.reads), list(item.spans)) == ([0], [])
    await store.records.redact(ctx.context_id, "/items/0/source/ref", reason="asked to")
    (item,) = (await traced(store, ctx)).items
    assert (item.source_ref, list(item.reads)) == (None, [])


async def test_the_widths_of_the_items_are_the_tokens_of_the_text(
    store: FeatureStore, blurb: type
) -> None:
    @context(store, max_tokens=24, model="gpt-4o", separator=" | ")
    async def made(user_id: str) -> list[ContextItem]:
        return [
            ContextItem("'s", required=True),
            ContextItem("", required=True),
            ContextItem("A sentence, which ends here.", priority=9),
            ContextItem("x" * 400, priority=1),
            ContextItem("日本語のテキスト", priority=8),
        ]

    trace = await traced(store, await made("ada"))
    widths = [item.width for item in trace.items]
    assert [width is None for width in widths] == [False, False, False, True, False]
    assert widths[1] == 0
    assert sum(width or 0 for width in widths) == trace.tokens
    assert sum(item.emitted_tokens for item in trace.items) < trace.tokens  # the separators


@pytest.mark.parametrize("backfill", [False, True])
async def test_the_missing_budget_keeps_every_item_and_one_token_less_does_not(
    store: FeatureStore, *, backfill: bool
) -> None:
    texts = ["one two three four five six", "seven", "eight nine ten eleven", "twelve. And more"]

    @context(store, max_tokens=8, model="gpt-4o", backfill=backfill, allow_looser="max_tokens")
    async def made() -> list[ContextItem]:
        return [ContextItem(text, priority=-n) for n, text in enumerate(texts)]

    short_by = (await traced(store, await made())).short_by
    assert short_by
    for budget, everything in ((8 + short_by, True), (8 + short_by - 1, False)):
        trace = await traced(store, await made.options(max_tokens=budget)())
        assert all(item.decision == "kept" for item in trace.items) is everything
        assert (trace.short_by == 0) is everything


async def test_required_items_over_the_budget_count_as_missing(store: FeatureStore) -> None:
    @context(store, max_tokens=2, model="gpt-4o", on_overflow="flag")
    async def made() -> str:
        return "one two three four five"

    trace = await traced(store, await made())
    assert (trace.overflow, trace.short_by) == (True, trace.tokens - 2)


async def test_without_texts_or_with_another_tokenizer_nothing_is_counted(
    store: FeatureStore,
) -> None:
    @context(store, max_tokens=4, model="gpt-4o", backfill=True)
    async def made() -> list[ContextItem]:
        return [ContextItem("one two three four five"), ContextItem("six seven eight nine ten")]

    ctx = await made()
    record = await store.records.get(ctx.context_id)
    core = open_core(record)
    tokenizer = msgspec.structs.replace(core.tokenizer, name="another")
    private = open_core(msgspec.structs.replace(record, disclosures=()))
    for changed in (msgspec.structs.replace(core, tokenizer=tokenizer), private):
        trace = explained(record, changed, {})
        assert {item.width for item in trace.items} == {None}
        assert trace.short_by is None


def test_a_template_is_the_template_of_its_own_text() -> None:
    for text in ("", "{a}", "{{}}{a}{b}}}{{", "x {a} y"):
        template = parse_template(text)
        assert (parse_template(template.text), template.text) == (template, text)
    assert list(Template(("<", ">"), ("a",)).places({"a": "12"})) == [("a", 1, 3)]
