"""How a context differs from the recorded one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from headwater import Chunk, ContextItem, FeatureStore, context, retriever
from headwater.contexts.evaluation.differences import (
    OTHER_COUNT,
    WITHHELD_TEXTS,
    ContextDifference,
    difference,
)
from headwater.declarations.contexts import ContextFunction
from headwater.errors import FreshnessSLAError
from headwater.records.core import Commitment, Core
from headwater.records.sealing import open_core
from headwater.testing import ManualClock
from tests.contexts.recorded.shop import Shop, declare
from tests.contexts.support import recorded

Assembles = Callable[..., Awaitable[Core]]


@pytest.fixture
def assembles(store: FeatureStore) -> Assembles:
    """Assemble a context of some items and return its core."""
    names = iter(range(1_000))

    async def assemble(*items: ContextItem, **options: Any) -> Core:
        @context(store, name=f"desk{next(names)}", **{"model": "gpt-4o"} | options)
        async def desk() -> Sequence[ContextItem]:
            return items

        return await recorded(store, await desk())

    return assemble


@pytest.fixture
def shop(store: FeatureStore) -> Shop:
    return declare(store)


def text(content: str, **options: Any) -> ContextItem:
    return ContextItem(content, **options)


RULES = text("You are a support agent.", required=True, priority=100)
PARCELS = text("Parcels arrive within three days.", priority=50)
RETURNS = text("Returns are free of charge.", priority=40)
LONG = text("The shop sells boots. " * 20, priority=1, truncate=True)


def counts(found: ContextDifference) -> tuple[int, int, int, int]:
    return (found.gained, found.lost, found.cut, found.lost_required)


async def test_a_context_assembled_again_differs_in_nothing(shop: Shop, clock: ManualClock) -> None:
    await shop.spends("u1", 5)
    one = await recorded(shop.store, await shop.asks())
    clock.advance("3s")
    shop.documents = [
        Chunk(text=chunk.text, id=chunk.id, score=(chunk.score or 0) + 1e-15)
        for chunk in shop.documents
    ]
    two = await recorded(shop.store, await shop.asks())
    assert one.context_id != two.context_id
    found = difference(one, two)
    assert (found.kinds, found.reasons, counts(found)) == ((), (), (0, 0, 0, 0))
    assert found.content_after == one.output.content_hash
    assert (found.tokens_before, found.tokens_after) == (one.output.tokens, two.output.tokens)
    assert (found.freshness_before, found.freshness_after) == ("guaranteed", "guaranteed")


async def test_inner_contexts_are_compared_by_their_text_and_not_by_their_ids(shop: Shop) -> None:
    store = shop.store
    await shop.spends("u1", 5)
    one = await recorded(store, await shop.outer("u1"))
    two = await recorded(store, await shop.outer("u1"))
    assert one.items[0].source.ref != two.items[0].source.ref
    assert difference(one, two).kinds == ()
    await shop.spends("u1", 7)
    three = await recorded(store, await shop.outer("u1"))
    assert "edited" in difference(two, three).kinds
    assert counts(difference(two, three)) == (0, 0, 0, 0)


async def test_items_are_gained_lost_and_edited(assembles: Assembles) -> None:
    one = await assembles(RULES, PARCELS)
    gained = difference(one, await assembles(RULES, PARCELS, text("Be kind.", section="tone")))
    assert (gained.kinds, counts(gained)) == (("gained", "tokens", "price"), (1, 0, 0, 0))
    lost = difference(one, await assembles(RULES))
    assert (lost.kinds, counts(lost)) == (("lost", "tokens", "price"), (0, 1, 0, 0))
    edited = difference(
        one, await assembles(RULES, text("Parcels arrive within six days.", priority=50))
    )
    assert (edited.kinds, counts(edited)) == (("edited",), (0, 0, 0, 0))


async def test_items_that_only_moved_are_reordered(assembles: Assembles) -> None:
    one = await assembles(RULES, PARCELS, RETURNS)
    two = await assembles(RULES, RETURNS, PARCELS)
    assert difference(one, two).kinds == ("reordered",)
    assert difference(one, one).kinds == ()


async def test_a_smaller_budget_cuts_and_loses_items(assembles: Assembles) -> None:
    items = (RULES, PARCELS, RETURNS, LONG)
    whole = await assembles(*items)
    cut = await assembles(*items, max_tokens=60)
    shorter = await assembles(*items, max_tokens=50)
    dropped = await assembles(*items, max_tokens=14)
    assert difference(whole, cut).kinds == ("cut", "tokens", "price")
    assert counts(difference(whole, cut)) == (0, 0, 1, 0)
    assert counts(difference(cut, shorter)) == (0, 0, 1, 0)
    assert difference(shorter, cut).kinds == ("edited", "tokens", "price")
    lost = difference(whole, dropped)
    assert (lost.kinds, counts(lost)) == (("lost", "tokens", "price"), (0, 2, 0, 0))
    assert counts(difference(dropped, whole)) == (2, 0, 0, 0)


async def test_items_that_neither_context_shows_do_not_count(assembles: Assembles) -> None:
    one = await assembles(RULES, LONG, max_tokens=6)
    two = await assembles(RULES, text(""), RETURNS, max_tokens=6)
    assert one.output.items_dropped == two.output.items_dropped == 1
    assert difference(one, two).kinds == ()


async def test_required_items_that_are_lost_are_counted(assembles: Assembles) -> None:
    one = await assembles(RULES, text("Never promise refunds.", required=True), PARCELS)
    removed = difference(one, await assembles(RULES, PARCELS))
    assert counts(removed) == (0, 1, 0, 1)
    replaced = difference(one, await assembles(RULES, text("Have a nice day."), PARCELS))
    assert counts(replaced) == (1, 1, 0, 1)
    assert replaced.kinds[:2] == ("gained", "lost")
    reworded = text("Never ever promise refunds.", required=True)
    assert counts(difference(one, await assembles(RULES, reworded, PARCELS))) == (0, 0, 0, 0)


async def test_a_separator_alone_edits_the_text(assembles: Assembles) -> None:
    one, two = await assembles(RULES, PARCELS), await assembles(RULES, PARCELS, separator=" ")
    assert difference(one, two).kinds[0] == "edited"


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (64).to_bytes(4) + (64).to_bytes(4) + b"\x08\x06\0\0\0"


def conversation(**changes: ContextItem) -> list[ContextItem]:
    parts = {
        "system": text("You help customers.", role="system", required=True, cache=True),
        "tool": ContextItem.tool("track", {"type": "object"}, "Where a parcel is"),
        "hello": text("Hello", role="user", turn=0),
        "call": ContextItem.tool_call("track", {"parcel": "p-7"}, id="c-1"),
        "result": ContextItem.tool_result("c-1", {"state": "lost"}),
        "image": ContextItem.image(PNG),
        "question": text("Where is it?", role="user", required=True),
    }
    return list((parts | changes).values())


async def test_messages_are_compared_with_roles_tool_calls_and_images(
    assembles: Assembles,
) -> None:
    one = await assembles(*conversation())
    assert difference(one, await assembles(*conversation())).kinds == ()
    for changes in (
        {"hello": text("Hello", role="assistant", turn=0)},
        {
            "call": ContextItem.tool_call("track", {"parcel": "p-8"}, id="c-1"),
            "result": ContextItem.tool_result("c-1", {"state": "lost"}),
        },
        {"result": ContextItem.tool_result("c-1", {"state": "found"})},
        {"image": ContextItem.image(PNG + b"\0")},
        {"tool": ContextItem.tool("track", {"type": "object"}, "Where a parcel was")},
    ):
        found = difference(one, await assembles(*conversation(**changes)))
        assert "edited" in found.kinds, changes
        assert counts(found) == (0, 0, 0, 0), changes


async def test_another_cache_mark_is_a_matter_of_price(assembles: Assembles) -> None:
    one = await assembles(*conversation())
    unmarked = text("You help customers.", role="system", required=True)
    found = difference(one, await assembles(*conversation(system=unmarked)))
    assert found.kinds == ("price",)


async def test_values_that_were_read_and_not_shown_are_compared(shop: Shop) -> None:
    store = shop.store

    @context(store)
    async def quiet(user_id: str) -> str:
        await store.get_feature("total", user_id)
        return "Hello"

    cores = []
    for amount in (5, 5, 7):
        await shop.spends("u1", amount)
        cores.append(await recorded(store, await quiet("u1")))
    assert difference(cores[0], cores[1]).kinds == ()
    changed = difference(cores[0], cores[2])
    assert (changed.kinds, changed.values) == (("values",), ("total",))


@pytest.mark.parametrize(
    ("before", "after"), [(1, 1.0), ([1], [1.0]), ("1", 1), (None, 0), ({"a": 1}, {"a": 2})]
)
async def test_values_of_another_type_differ(shop: Shop, before: Any, after: Any) -> None:
    core = await recorded(shop.store, await shop.asks())

    def reading(value: object) -> Core:
        return replace(core, features=(replace(core.features[0], value=value),))

    assert difference(reading(before), reading(after)).kinds == ("values",)
    assert difference(reading(before), reading(before)).kinds == ()
    nan = reading({"of": [float("nan")]})
    assert difference(nan, nan).kinds == ()


async def test_withheld_values_and_texts_are_reasons_and_not_changes(shop: Shop) -> None:
    core = await recorded(shop.store, await shop.asks())
    withheld = Commitment("sha256:0")
    private = replace(
        core,
        items=tuple(replace(item, content=withheld) for item in core.items),
        features=tuple(replace(read, value=withheld) for read in core.features),
        output=replace(core.output, content=withheld),
    )
    same = difference(private, core)
    assert same.kinds == ()
    assert same.reasons == (
        "the record withholds values of name",
        "the record withholds values of total",
    )
    shop.documents = []
    other = difference(private, await recorded(shop.store, await shop.asks()))
    assert "lost" in other.kinds
    assert WITHHELD_TEXTS in other.reasons


async def test_prices_that_were_set_since_and_counts_of_others_are_no_differences(
    assembles: Assembles,
) -> None:
    core = await assembles(RULES, PARCELS)
    dearer = replace(core, output=replace(core.output, cost_nano_usd=9_999_999))
    assert difference(core, dearer).kinds == ()
    assert difference(core, dearer).cost_after == core.output.cost_nano_usd
    unpriced = replace(core, output=replace(core.output, cost_nano_usd=None))
    assert difference(core, unpriced).kinds == difference(unpriced, core).kinds == ()
    recounted = replace(
        core,
        output=replace(core.output, tokens=core.output.tokens + 1),
        versions=replace(core.versions, tokenizer="0.0"),
    )
    found = difference(core, recounted)
    assert (found.kinds, found.reasons) == ((), (OTHER_COUNT,))


async def test_another_model_changes_the_price(assembles: Assembles) -> None:
    one = await assembles(RULES, model="gpt-4o")
    two = await assembles(RULES, model="gpt-4o-mini")
    assert difference(one, two).kinds == ("price",)
    assert difference(one, two).model == "gpt-4o-mini"


async def test_freshness_and_refusals_are_compared(shop: Shop, clock: ManualClock) -> None:
    store = shop.store

    @context(store, name="lax", freshness_sla="1m")
    async def lax(user_id: str) -> str:
        return str(await store.get_feature("total", user_id))

    @context(store, name="strict", freshness_sla="1m", freshness_strict=True)
    async def strict(user_id: str) -> str:
        return str(await store.get_feature("total", user_id))

    async def core_of(function: ContextFunction[Any]) -> Core:
        try:
            context_id = (await function("u1")).context_id
        except FreshnessSLAError as refusal:
            context_id = str(refusal.context_id)
        return open_core(await store.get_record(context_id))

    await shop.spends("u1", 5)
    fresh = await core_of(lax)
    served = await core_of(strict)
    clock.advance("5m")
    stale, refused = await core_of(lax), await core_of(strict)
    found = difference(fresh, stale)
    assert (found.kinds, found.freshness_after) == (("freshness",), "degraded")
    assert difference(served, refused).kinds == ("refusal",)
    assert difference(refused, served).kinds == ("refusal",)
    assert difference(refused, refused).kinds == ()


async def test_results_in_another_order_that_are_shown_are_reordered(
    store: FeatureStore,
) -> None:
    chunks = [Chunk(text="a one", id="1", score=0.5), Chunk(text="b two", id="2", score=0.4)]

    @retriever(store)
    async def found(query: str) -> list[Chunk]:
        return chunks

    @context(store)
    async def desk() -> list[ContextItem]:
        return [ContextItem(chunk.text, source=chunk) for chunk in await found("q")]

    one = await recorded(store, await desk())
    chunks.reverse()
    assert difference(one, await recorded(store, await desk())).kinds == ("reordered",)
