"""Contexts are found by id, prefix, hash and provenance, and listed by time."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from headwater import Context, ContextItem, FeatureStore, ServiceEvent, context, entity, feature
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    AmbiguousRefError,
    InvalidInputError,
    NotFoundError,
    UnknownContextError,
    UnknownNameError,
)
from headwater.model.callers import Caller, set_caller
from headwater.model.contexts import ContextPage
from headwater.testing import ManualClock
from tests.contexts.recorded.shop import Shop


def ids(page: ContextPage) -> list[str]:
    return [summary.context_id for summary in page.contexts]


async def test_a_context_is_found_by_its_id_its_hash_and_the_beginning_of_its_id(
    shop: Shop,
) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    hash_ = str(made.record_hash)
    refs = [made.context_id, made.context_id.upper(), made.context_id[:13], hash_, hash_[7:]]
    for ref in refs:
        record = await shop.store.get_record(ref)
        assert (record.context_id, record.record_hash) == (made.context_id, hash_)


async def test_the_beginning_of_several_ids_is_refused_with_their_names(shop: Shop) -> None:
    both = [(await shop.plain("a")).context_id, (await shop.plain("b")).context_id]
    with pytest.raises(AmbiguousRefError, match="give more of the id") as caught:
        await shop.store.get_record(both[0][:8])
    assert list(caught.value.ids) == both


@pytest.mark.parametrize(
    "ref", ["", "0190", "0190aaaa", "0190aaaa-0000-7000-8000-000000000000", "ä" * 9, "a\0" * 5]
)
async def test_an_unknown_context_is_not_found_and_the_message_has_a_remedy(
    shop: Shop, ref: str
) -> None:
    await shop.plain("a")
    with pytest.raises(UnknownContextError, match="headwater context list") as caught:
        await shop.store.get_record(ref)
    assert isinstance(caught.value, NotFoundError)


async def test_a_past_context_equals_the_context(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.support.options(interaction_ref={"call_id": "c1", "turn_index": 3})("u1")
    past = await shop.store.get_context_at(made.context_id)
    for field in (
        "content",
        "context_id",
        "record_hash",
        "content_hash",
        "name",
        "tokens",
        "cost_nano_usd",
        "freshness_status",
        "freshness_violations",
        "freshness_sla_ms",
        "interaction_ref",
        "lineage",
        "meta",
    ):
        assert getattr(past, field) == getattr(made, field), field
    assert past.inputs == {"user_id": "u1", "question": "?"}
    assert (past.withheld, past.redacted, past.signed_by) == ([], [], None)
    assert past.is_fresh == made.is_fresh
    assert str(past) == made.content


async def test_an_explanation_says_why_each_item_is_there_or_not(shop: Shop) -> None:
    await shop.spends("u1", 5)
    shop.documents.append(shop.documents[0].__class__(text="Long. " * 100, id="d3"))
    made = await shop.asks()
    told = await shop.store.records.explain(made.context_id[:-2])
    assert [item.decision for item in told.items] == [i.decision for i in made.lineage.items]
    assert told.items[0].why == "kept, because it is required"
    dropped = next(item for item in told.items if item.source_ref == "d3")
    assert dropped.decision == "dropped"
    assert f"max_tokens would have to be {dropped.short_by} higher" in dropped.why
    assert (dropped.emitted, dropped.content) == (None, "Long. " * 100)
    assert [found.id for found in told.retrievers[0].results] == ["d1", "d2", "d3"]
    assert [found.score for found in told.retrievers[0].results] == ["0.9", "0.5", None]
    assert told.retrievers[0].latency_ms > 0
    assert {read.feature: read.value for read in told.features} == {"total": 5, "name": "Ann"}
    assert (told.tokens, told.max_tokens, told.model) == (made.tokens, 60, "gpt-4o")
    assert told.assembly_ms == made.lineage.assembly_ms
    assert f"{told.tokens} tokens (of 60)" in told.summary


async def test_a_list_goes_from_the_newest_to_the_oldest_and_keeps_to_its_bounds(
    shop: Shop, clock: ManualClock
) -> None:
    made: list[str] = []
    moments: list[datetime] = []
    for number in range(4):
        moments.append(clock.now())
        made.append((await shop.plain(str(number))).context_id)
        clock.advance("1m")
    newest = made[::-1]
    assert ids(await shop.store.list_contexts()) == newest
    assert ids(await shop.store.list_contexts(moments[1], moments[3])) == newest[1:3]
    assert ids(await shop.store.list_contexts(start=moments[2])) == newest[:2]
    assert ids(await shop.store.list_contexts(end=moments[0])) == []


async def test_a_list_can_be_of_one_name_or_one_freshness(shop: Shop) -> None:
    await shop.spends("u1", 5)
    fresh, missing, other = await shop.asks(), await shop.asks("unknown"), await shop.plain("a")
    by_name = await shop.store.list_contexts(name="support")
    assert ids(by_name) == [missing.context_id, fresh.context_id]
    degraded = await shop.store.list_contexts(freshness_status="degraded")
    assert ids(degraded) == [missing.context_id]
    both = await shop.store.list_contexts(name="plain", freshness_status="guaranteed")
    assert ids(both) == [other.context_id]
    assert degraded.contexts[0].record_hash == missing.record_hash


async def test_pages_go_on_where_the_last_one_ended_while_new_contexts_come(
    shop: Shop, clock: ManualClock
) -> None:
    made = [(await shop.plain(str(number))).context_id for number in range(5)]
    newest = made[::-1]
    page = await shop.store.list_contexts(limit=2)
    seen = ids(page)
    while page.next_cursor is not None:
        clock.advance("1s")
        await shop.plain("meanwhile")
        page = await shop.store.list_contexts(limit=2, cursor=page.next_cursor)
        seen += ids(page)
    assert seen == newest


async def test_a_full_last_page_has_no_next_one(shop: Shop) -> None:
    await shop.plain("a")
    await shop.plain("b")
    assert (await shop.store.list_contexts(limit=2)).next_cursor is None
    assert (await shop.store.list_contexts(limit=1)).next_cursor is not None


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        ({"limit": 0}, "from 1 to 1000"),
        ({"limit": 1_001}, "from 1 to 1000"),
        ({"freshness_status": "garanteed"}, "did you mean 'guaranteed'"),
        ({"cursor": "0190aaaa-0000-7000-8000-000000000000"}, "no record has the id"),
        ({"start": datetime(2026, 1, 1)}, "start needs a time zone"),  # noqa: DTZ001
    ],
)
async def test_a_list_that_cannot_be_is_refused_with_the_remedy(
    shop: Shop, asked: dict[str, object], problem: str
) -> None:
    with pytest.raises(InvalidInputError, match=problem):
        await shop.store.list_contexts(**asked)  # type: ignore[arg-type]


async def test_contexts_are_found_by_feature_entity_and_chunk(shop: Shop) -> None:
    for user in ("u1", "u2"):
        await shop.spends(user, 5)
    one, two = (await shop.asks("u1")).context_id, (await shop.asks("u2")).context_id
    shop.documents = [shop.documents[1]]
    three = (await shop.asks("u1")).context_id
    await shop.plain("u1")
    find = shop.store.records.find
    assert ids(await find(feature="total")) == [three, two, one]
    assert ids(await find(feature="total", entity_id="u1")) == [three, one]
    assert ids(await find(feature="name", entity_id="u2")) == [two]
    assert ids(await find(entity_id="u1")) == [three, one]
    assert ids(await find(chunk="d1")) == [two, one]
    assert ids(await find(chunk="d2", feature="total", entity_id="u1")) == [three, one]
    assert ids(await find(chunk="d1", entity_id="u1")) == [one]
    assert ids(await find(feature="total", entity_id="u3")) == []
    assert ids(await find(feature="gone")) == []
    with pytest.raises(InvalidInputError, match="chunk, document, index, score"):
        await find()
    # The context need not be declared any more.
    runtime_of(shop.store).registry.features.clear()
    assert ids(await find(feature="total", entity_id="u2")) == [two]
    assert ids(await find(entity_id="u1")) == [three, one]


async def test_entities_with_numbers_for_ids_are_found_by_number_and_by_text(shop: Shop) -> None:
    @entity(shop.store)
    class Order:
        order_id: int

    @feature(entity=Order, trigger="shipped")
    async def carrier(order_id: int, event: ServiceEvent) -> str:
        return "by bike"

    @context(shop.store)
    async def delivery(order_id: int) -> ContextItem:
        return ContextItem.template("Comes {carrier}.")

    made = await delivery(17)
    for entity_id in (17, "17"):
        page = await shop.store.records.find(feature="carrier", entity_id=entity_id)
        assert ids(page) == [made.context_id]
    del runtime_of(shop.store).registry.features["carrier"]
    assert ids(await shop.store.records.find(feature="carrier", entity_id=17)) == [made.context_id]


async def test_pages_of_results_are_stable_while_new_contexts_are_recorded(shop: Shop) -> None:
    await shop.spends("u1", 5)
    await shop.spends("u2", 5)
    made = []
    for number in range(7):
        made.append((await shop.asks("u1")).context_id)
        if number % 2:
            await shop.asks("u2")
    seen: list[str] = []
    cursor = None
    while True:
        page = await shop.store.records.find(entity_id="u1", chunk="d1", limit=2, cursor=cursor)
        seen += ids(page)
        await shop.asks("u1")
        if (cursor := page.next_cursor) is None:
            break
    assert seen == made[::-1]


async def test_a_context_is_assembled_by_name_and_an_unknown_one_has_a_nearest(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.store.assemble("support", {"user_id": "u1"})
    assert "Spent so far: 5" in made.content
    with pytest.raises(UnknownNameError, match="did you mean 'support'"):
        await shop.store.assemble("suport", {})
    with pytest.raises(InvalidInputError, match="user_id"):
        await shop.store.assemble("support", {})


async def test_ids_are_in_the_order_of_time(shop: Shop, clock: ManualClock) -> None:
    made = []
    for _ in range(3):
        made.append((await shop.plain("a")).context_id)
        clock.advance(timedelta(milliseconds=1))
    assert sorted(made) == made


async def test_every_verb_has_a_form_for_code_that_cannot_await(shop: Shop) -> None:
    def use() -> None:
        sync = shop.store.sync
        made = sync.assemble("plain", {"text": "a"})
        other = sync.record_external(name="elsewhere", content="b")
        assert sync.get_context_at(made.context_id).content == "a"
        assert sync.records.explain(made.context_id).content == "a"
        assert ids(sync.list_contexts()) == [other.context_id, made.context_id]
        assert ids(sync.records.find(chunk="d1")) == []
        assert sync.records.verify(made.context_id).ok
        assert sync.replay(made.context_id, "live").matches
        assert sync.records.diff(made.context_id, other.context_id).text
        redacted = sync.records.redact(made.context_id, "/inputs/text", reason="asked to")
        assert sync.get_record(made.context_id) == redacted
        sync.close()

    await asyncio.to_thread(use)


async def test_contexts_are_listed_by_the_caller_that_assembled_them(store: FeatureStore) -> None:
    async def as_billing() -> Context:
        set_caller(Caller("billing"))
        return await store.record_external(name="answer", content="Hello")

    by_library = await store.record_external(name="answer", content="Hi")
    by_key = await asyncio.create_task(as_billing())
    assert by_library.lineage.caller is None
    assert by_key.lineage.caller == "billing"
    (found,) = (await store.list_contexts(caller="billing")).contexts
    assert (found.context_id, found.caller) == (by_key.context_id, "billing")
    assert (await store.get_context_at(found.context_id)).caller == "billing"
    assert (await store.records.explain(found.context_id)).caller == "billing"


async def test_contexts_are_listed_by_a_prefix_of_their_id_or_hash(shop: Shop) -> None:
    made = [await shop.plain(text) for text in "abcd"]
    newest = [each.context_id for each in made[::-1]]
    prefix = newest[0][:4]
    listed = shop.store.list_contexts
    assert ids(await listed(prefix=prefix)) == newest
    first = await listed(prefix=prefix, limit=3)
    assert (ids(first), first.next_cursor) == (newest[:3], newest[2])
    assert ids(await listed(prefix=prefix, limit=3, cursor=newest[2])) == newest[3:]
    assert ids(await listed(prefix=f" {newest[1].upper()} ")) == [newest[1]]
    hash_ = str(made[2].record_hash)
    for beginning in (hash_, hash_[:20], hash_[7:20], hash_[7:]):
        assert ids(await listed(prefix=beginning)) == [made[2].context_id]
    assert ids(await listed(prefix=prefix, name="other")) == []
    for unknown in ("zz", "%", "sha256:", "\0", "ä"):
        found = ids(await listed(prefix=unknown))
        assert found == (sorted(newest, reverse=True) if unknown == "sha256:" else [])
    with pytest.raises(InvalidInputError, match="leave out the order"):
        await listed(prefix=prefix, oldest_first=True)


async def test_contexts_are_listed_oldest_first(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = [(await shop.asks()).context_id for _ in range(5)]
    first = await shop.store.list_contexts(limit=2, oldest_first=True)
    assert (ids(first), first.next_cursor) == (made[:2], made[1])
    rest = await shop.store.list_contexts(oldest_first=True, cursor=first.next_cursor)
    assert (ids(rest), rest.next_cursor) == (made[2:], None)
    find = shop.store.records.find
    first = await find(entity_id="u1", limit=2, oldest_first=True)
    assert ids(first) == made[:2]
    rest = await find(entity_id="u1", oldest_first=True, cursor=first.next_cursor)
    assert ids(rest) == made[2:]
    both = await find(feature="total", entity="User", entity_id="u1", oldest_first=True)
    assert ids(both) == made


async def test_contexts_with_a_provenance_are_found_in_a_span_and_by_the_filters_of_lists(
    shop: Shop,
) -> None:
    await shop.spends("u1", 5)
    made = [(await shop.asks()).context_id for _ in range(3)]
    (_, middle, _) = (await shop.store.records.find(entity_id="u1")).contexts
    find = shop.store.records.find
    after = middle.created_at + timedelta(microseconds=1)
    assert ids(await find(entity_id="u1", start=middle.created_at, end=after)) == made[::-1]
    assert ids(await find(entity_id="u1", start=after)) == []
    assert ids(await find(entity_id="u1", end=middle.created_at)) == []
    assert ids(await find(entity_id="u1", prefix=made[0])) == made[:1]
    assert ids(await find(entity_id="u1", name="support")) == made[::-1]
    assert ids(await find(entity_id="u1", name="other")) == []
    assert ids(await find(entity_id="u1", freshness_status="refused")) == []
    assert ids(await find(entity_id="u1", caller="web")) == []


async def test_lists_show_tokens_budget_and_what_happened_to_the_record(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    (listed,) = (await shop.store.list_contexts()).contexts
    trace = await shop.store.records.explain(made.context_id)
    assert (listed.tokens, listed.max_tokens) == (trace.tokens, trace.max_tokens)
    assert (listed.model, listed.cost_nano_usd) == (trace.model, trace.cost_nano_usd)
    dropped = [item for item in trace.items if item.decision == "dropped"]
    assert listed.items_dropped == len(dropped)
    assert (listed.is_signed, listed.is_redacted) == (False, False)
    await shop.store.records.redact(made.context_id, "/output/content", reason="test")
    (listed,) = (await shop.store.list_contexts()).contexts
    assert listed.is_redacted
