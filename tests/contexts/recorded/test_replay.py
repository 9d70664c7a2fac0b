"""Replays: the stored text, the stored items fitted again, and the function run again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from headwater import Context, ContextItem, FeatureStore, context, retriever
from headwater.contexts.recorded.replay import show
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    FreshnessSLAError,
    InvalidInputError,
    ReplayError,
    TokenBudgetError,
    UnknownNameError,
)
from headwater.model.contexts import Mode
from headwater.records.sealing import open_core, seal
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.recorded.shop import Opens, Shop
from tests.engine.support import metric
from verifier.generator.samples import sample


async def kept(shop: Shop) -> int:
    return len((await shop.store.list_contexts()).contexts)


async def test_show_gives_the_stored_text_without_running_anything(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    shown = await shop.store.replay(made.context_id)
    assert (shown.mode, shown.content, shown.matches) == ("show", made.content, True)
    assert shown.content_hash == made.content_hash
    assert shown.fidelity.startswith("exact")
    assert shop.runs == 1


async def test_reassemble_fits_the_stored_items_again(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    again = await shop.store.replay(made.context_id, "reassemble")
    assert (again.content, again.content_hash) == (made.content, made.content_hash)
    assert again.matches is True
    assert again.fidelity.startswith("exact")
    assert again.differences is not None
    assert {item.change for item in again.differences.items} == {"same"}
    assert (shop.runs, await kept(shop)) == (1, 1)


async def test_as_of_runs_the_function_with_the_features_of_that_moment(
    shop: Shop, clock: ManualClock
) -> None:
    await shop.spends("u1", 5, "Ann")
    clock.advance("1m")
    made = await shop.asks()
    clock.advance("1m")
    await shop.spends("u1", 99, "Bob")
    then = await shop.store.replay(made.context_id, "as_of")
    assert "Spent so far: 5" in str(then.content)
    assert "Ann" in str(then.content)
    assert (then.content_hash, then.matches) == (made.content_hash, True)
    assert "features as the record says they were read" in then.fidelity
    assert "retrievers called now" in then.fidelity
    assert shop.runs == 2
    assert then.context is not None
    ages = [read.age_ms for read in then.context.lineage.features]
    assert ages == [read.age_ms for read in made.lineage.features] == [60_000, 60_000]


async def test_as_of_sees_no_value_that_was_not_there_yet(shop: Shop, clock: ManualClock) -> None:
    made = await shop.asks()
    clock.advance("1m")
    await shop.spends("u1", 5)
    then = await shop.store.replay(made.context_id, "as_of")
    assert "Spent so far: None" in str(then.content)
    assert then.matches is True


async def test_concurrent_replays_and_reads_never_mix_as_of_and_now(
    shop: Shop, clock: ManualClock
) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    clock.advance("1m")
    await shop.spends("u1", 99)
    then, now, again = await asyncio.gather(
        shop.store.replay(made.context_id, "as_of"),
        shop.asks(),
        shop.store.replay(made.context_id, "live"),
    )
    assert "Spent so far: 5" in str(then.content)
    assert "Spent so far: 99" in now.content
    assert again.content == now.content
    assert now.meta["recorded"] is True
    assert await kept(shop) == 2


async def test_search_results_of_an_as_of_replay_are_not_cached(
    shop: Shop, clock: ManualClock
) -> None:
    @retriever(shop.store, cache_ttl="1d")
    async def offers(user_id: str) -> list[str]:
        return [f"for {await shop.store.get_feature('total', user_id)}"]

    @context(shop.store)
    async def advert(user_id: str) -> list[ContextItem]:
        return [ContextItem(offer.text, source=offer) for offer in await offers(user_id)]

    await shop.spends("u1", 5)
    made = await advert("u1")
    clock.advance("2d")
    await shop.spends("u1", 99)
    assert (await shop.store.replay(made.context_id, "as_of")).content == "for 5"
    assert (await advert("u1")).content == "for 99"


async def test_live_runs_the_function_with_the_features_of_now(
    shop: Shop, clock: ManualClock
) -> None:
    await shop.spends("u1", 5, "Ann")
    made = await shop.asks()
    clock.advance("1m")
    await shop.spends("u1", 99, "Ann")
    now = await shop.store.replay(made.context_id, "live")
    assert "Spent so far: 99" in str(now.content)
    assert (now.matches, now.content_hash == made.content_hash) == (False, False)
    assert now.fidelity.startswith("another text: features as they are now")
    assert now.differences is not None
    changed = {read.feature: read.change for read in now.differences.features}
    assert changed == {"total": "changed", "name": "same"}
    assert "-Spent so far: 5" in str(now.differences.text)
    assert "+Spent so far: 99" in str(now.differences.text)


@pytest.mark.parametrize("mode", ["as_of", "live"])
async def test_a_replay_and_its_inner_contexts_are_neither_recorded_nor_counted(
    shop: Shop, mode: Mode
) -> None:
    await shop.spends("u1", 5)
    made = await shop.outer("u1")
    counted = metric("headwater_context_freshness_status_total", status="guaranteed")
    again = await shop.store.replay(made.context_id, mode)
    assert again.content == made.content
    assert again.context is not None
    assert again.context.meta["recorded"] is False
    assert [nested.name for nested in again.context.lineage.contexts] == ["support"]
    assert await kept(shop) == 2
    assert metric("headwater_context_freshness_status_total", status="guaranteed") == counted


async def test_a_replay_keeps_to_the_budget_and_the_sla_of_the_recorded_call(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.support.options(max_tokens=20, freshness_sla="30m")("u1")
    again = await shop.store.replay(made.context_id, "live")
    assert again.context is not None
    assert again.context.lineage.max_tokens == 20
    assert again.context.freshness_sla_ms == 1_800_000
    assert again.content == made.content


@pytest.mark.parametrize("mode", ["live", "as_of"])
async def test_a_replay_uses_the_budget_and_the_sla_that_are_declared_today(
    settings: Settings, clock: ManualClock, mode: Mode
) -> None:
    async def replayed(
        store: FeatureStore, max_tokens: int, sla: str, ref: str | None
    ) -> tuple[str, Context]:
        @context(store, name="advice", model="gpt-4o", max_tokens=max_tokens, freshness_sla=sla)
        async def advice() -> list[ContextItem]:
            return [ContextItem("one two three four"), ContextItem("five six seven eight")]

        if ref is None:
            made = await advice.options(freshness_sla="1m")()
            return made.context_id, made
        again = (await store.replay(ref, mode)).context
        assert again is not None
        return ref, again

    async with FeatureStore(settings=settings, clock=clock) as before:
        ref, made = await replayed(before, 6, "5m", None)
    assert made.content == "one two three four"
    async with FeatureStore(settings=settings, clock=clock) as after:
        _, again = await replayed(after, 50, "2m", ref)
        fidelity = (await after.replay(ref, mode)).fidelity
    assert again.content == "one two three four\n\nfive six seven eight"
    assert again.lineage.max_tokens == 50
    assert again.freshness_sla_ms == 60_000  # the recorded call had set it
    assert "budget and rules as declared now" in fidelity


async def test_a_strict_context_is_replayed_as_of_then_and_refused_now(
    shop: Shop, clock: ManualClock
) -> None:
    @context(shop.store, freshness_sla="5m", freshness_strict=True)
    async def strict(user_id: str) -> str:
        return str(await shop.store.get_feature("total", user_id))

    await shop.spends("u1", 5)
    made = await strict("u1")
    clock.advance("1h")
    assert (await shop.store.replay(made.context_id, "as_of")).matches is True
    with pytest.raises(FreshnessSLAError):
        await shop.store.replay(made.context_id, "live")


async def test_a_recorded_refusal_is_refused_again_or_fulfilled_now(
    shop: Shop, clock: ManualClock
) -> None:
    @context(shop.store, freshness_sla="5m", freshness_strict=True)
    async def strict(user_id: str) -> str:
        return str(await shop.store.get_feature("total", user_id))

    await shop.spends("u1", 5)
    clock.advance("1h")
    with pytest.raises(FreshnessSLAError) as refusal:
        await strict("u1")
    ref = refusal.value.context_id
    assert ref is not None
    assert (await shop.store.replay(ref)).fidelity.endswith("; it was refused")
    modes: tuple[Mode, ...] = ("as_of", "live")
    for mode in modes:
        again = await shop.store.replay(ref, mode)
        assert again.fidelity.startswith("refused again, the same text: ")
        assert again.context is not None
        assert again.context.freshness_status == "refused"
    await shop.spends("u1", 7)
    now = await shop.store.replay(ref, "live")
    assert now.fidelity.startswith("no longer refused, another text: ")
    assert await kept(shop) == 1


async def test_a_changed_function_is_reported(opens: Opens, clock: ManualClock) -> None:
    shop = opens()
    made = await shop.plain("a")
    later = opens()
    changed = runtime_of(later.store).registry.contexts["plain"]
    runtime_of(later.store).registry.contexts["plain"] = msgspec.structs.replace(
        changed, function=lambda text: text * 2, definition="sha256:other"
    )
    again = await later.store.replay(made.context_id, "as_of")
    assert (again.content, again.matches) == ("aa", False)
    assert "the function has changed since" in again.fidelity


async def test_an_external_context_is_replayed_by_the_function_of_its_name_with_a_caution(
    shop: Shop,
) -> None:
    made = await shop.store.record_external(name="plain", content="a", inputs={"text": "a"})
    again = await shop.store.replay(made.context_id, "live")
    assert again.matches is True
    assert "it is unknown whether the function has changed" in again.fidelity


async def test_a_function_that_is_gone_or_takes_other_inputs_says_so(opens: Opens) -> None:
    shop = opens()
    made = await shop.plain("a")
    later = opens()
    definition = runtime_of(later.store).registry.contexts.pop("plain")
    with pytest.raises(UnknownNameError, match="plain"):
        await later.store.replay(made.context_id, "live")
    other = runtime_of(later.store).registry.contexts["outer"]
    runtime_of(later.store).registry.contexts["plain"] = msgspec.structs.replace(
        definition, signature=other.signature
    )
    with pytest.raises(InvalidInputError, match="'text', but its function has no such parameter"):
        await later.store.replay(made.context_id, "live")


async def test_an_unknown_mode_has_a_nearest(shop: Shop) -> None:
    made = await shop.plain("a")
    with pytest.raises(InvalidInputError, match="did you mean 'as_of'"):
        await shop.store.replay(made.context_id, "asof")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["reassemble", "as_of", "live"])
async def test_a_private_record_can_only_be_shown(opens: Opens, mode: Mode) -> None:
    shop = opens(record={"include_content": False})
    made = await shop.plain("a secret")
    shown = await shop.store.replay(made.context_id)
    assert (shown.content, shown.matches) == (None, None)
    assert shown.content_hash == made.content_hash
    assert "withheld" in shown.fidelity
    with pytest.raises(ReplayError, match=f"`headwater context show {made.context_id}`") as caught:
        await shop.store.replay(made.context_id, mode)
    assert caught.value.withheld


async def test_a_store_without_content_replays_records_that_have_content(opens: Opens) -> None:
    made = await opens().plain("a")
    later = opens(record={"include_content": False})
    assert (await later.store.replay(made.context_id, "live")).matches is True


async def test_a_redacted_input_takes_the_replays_that_need_it(shop: Shop) -> None:
    await shop.spends("u1", 5)
    made = await shop.asks()
    await shop.store.records.redact(made.context_id, "/inputs/question", reason="asked to")
    assert (await shop.store.replay(made.context_id, "reassemble")).matches is True
    with pytest.raises(ReplayError) as caught:
        await shop.store.replay(made.context_id, "as_of")
    assert caught.value.withheld == ("/inputs/question",)
    other = await shop.plain.options(interaction_ref={"call_id": "c1"})("a")
    await shop.store.records.redact(other.context_id, "/interaction_ref", reason="asked to")
    with pytest.raises(ReplayError) as caught:
        await shop.store.replay(other.context_id, "as_of")
    assert caught.value.withheld == ("/interaction_ref",)


@pytest.fixture
async def generated(settings: Settings, clock: ManualClock) -> AsyncIterator[FeatureStore]:
    """One store for all the contexts that are generated."""
    store = FeatureStore(settings=settings, clock=clock)
    yield store
    await store.close()


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60) | st.sampled_from(
    [
        "",
        "\n\n",
        "word " * 30,
        "<|endoftext|>",
        "日本語のテキスト。" * 5,
        "a.b\n\nc",
        "  ",
        "🙂" * 9,
    ]
)
items = st.builds(
    ContextItem,
    texts,
    priority=st.integers(-3, 3),
    required=st.booleans(),
    truncate=st.booleans(),
    section=st.sampled_from([None, "facts"]),
)


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_reassembling_reproduces_the_text_of_every_context(
    generated: FeatureStore, data: st.DataObject
) -> None:
    given_items = data.draw(st.lists(items, max_size=8))
    runtime_of(generated).registry.contexts.pop("anything", None)

    @context(
        generated,
        max_tokens=data.draw(st.none() | st.integers(1, 60)),
        separator=data.draw(st.sampled_from(["\n\n", "", " | ", "\n"])),
        on_overflow=data.draw(st.sampled_from(["error", "flag"])),
        backfill=data.draw(st.booleans()),
        model=data.draw(st.sampled_from([None, "gpt-4o", "gpt-4", "someone's own"])),
    )
    async def anything() -> list[ContextItem]:
        return given_items

    try:
        made = await anything()
    except TokenBudgetError:
        return
    again = await generated.replay(made.context_id, "reassemble")
    assert (again.content_hash, again.matches) == (made.content_hash, True)
    assert again.content == made.content
    assert again.differences is not None
    assert {item.change for item in again.differences.items} <= {"same"}
    assert (await generated.records.verify(made.context_id)).of("reassembly").ok in (True, None)


def test_show_compares_the_text_with_its_hash() -> None:
    core = open_core(seal(sample()))
    assert show(core).fidelity.startswith("exact")
    altered = msgspec.structs.replace(core.output, content="a fake text")
    shown = show(msgspec.structs.replace(core, output=altered))
    assert (shown.content, shown.matches) == ("a fake text", False)
    assert shown.fidelity.startswith("broken")
