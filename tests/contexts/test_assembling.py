"""Assembling: arguments and results of the function, the budget, and overrides."""

from __future__ import annotations

import asyncio
import functools
import re
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater import (
    Context,
    ContextItem,
    FeatureStore,
    FreshnessSLAError,
    TokenBudgetError,
    context,
)
from headwater.core.tokens import tokenizer_for
from headwater.declarations.runtime import runtime_of
from headwater.errors import (
    BackendError,
    ConfigError,
    ContextFailedError,
    InvalidInputError,
    LooserOverrideError,
    RecordingError,
    RecordValueError,
)
from headwater.records.record import content_hash
from headwater.settings.loading import load
from headwater.settings.schema import Settings
from headwater.testing import ManualClock
from tests.contexts.support import recorded
from tests.engine.support import metric, records

# What a function gives


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ([ContextItem("a"), ContextItem("b")], "a\n\nb"),
        ((ContextItem("a"), "b"), "a\n\nb"),
        (ContextItem("a"), "a"),
        ("a", "a"),
        ([], ""),
    ],
)
async def test_a_function_gives_items_one_item_or_a_text(
    store: FeatureStore, given: object, content: str
) -> None:
    @context(store, max_tokens=50)
    async def made() -> object:
        return given

    @context(store, max_tokens=50)
    def made_in_a_thread() -> object:
        return given

    one, other = await made(), await made_in_a_thread()
    assert one.content == other.content == str(one) == content
    assert one.content_hash == other.content_hash == content_hash(content)


async def test_a_text_is_a_required_item(store: FeatureStore) -> None:
    @context(store, max_tokens=3)
    async def made(text: str) -> str:
        return text

    assert (await made("short")).lineage.items[0].required
    with pytest.raises(TokenBudgetError):
        await made("much too long for three tokens")


@pytest.mark.parametrize("given", [None, 5, {"content": "a"}, [ContextItem("a"), None]])
async def test_anything_else_is_refused(store: FeatureStore, given: object) -> None:
    @context(store)
    async def made() -> object:
        return given

    with pytest.raises(ContextFailedError, match="'made' must return ContextItems or text, not"):
        await made()


async def test_sync_functions_run_in_a_thread(store: FeatureStore) -> None:
    @context(store)
    def made() -> str:
        return threading.current_thread().name

    assert (await made()).content.startswith("headwater-sync")


async def test_an_async_function_behind_any_decorator_is_awaited(
    store: FeatureStore,
) -> None:
    def plain(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any) -> Any:
            return function(*args)

        return call

    def bare(function: Callable[..., Awaitable[str]]) -> Callable[..., Any]:
        def call() -> Any:
            return function()

        return call

    async def text() -> str:
        return "awaited"

    for number, decorator in enumerate((plain, bare)):
        made = context(store, name=f"made_{number}")(decorator(text))
        assert (await made()).content == "awaited"


async def test_an_exception_of_the_function_names_the_context(store: FeatureStore) -> None:
    @context(store)
    async def made() -> str:
        raise KeyError("gone")

    with pytest.raises(ContextFailedError, match="context 'made' failed: KeyError: 'gone'") as e:
        await made()
    assert isinstance(e.value.__cause__, KeyError)


# Arguments


async def test_arguments_of_every_kind_are_recorded_by_name(store: FeatureStore) -> None:
    seen: list[object] = []

    @context(store)
    async def made(first: str, /, second: int, *rest: int, third: float = 1.5, **more: str) -> str:
        seen.append((first, second, rest, third, more))
        return "text"

    ctx = await made("a", 2, 3, 4, fourth="d")
    assert seen == [("a", 2, (3, 4), 1.5, {"fourth": "d"})]
    assert (await recorded(store, ctx)).inputs == {
        "first": "a",
        "second": 2,
        "rest": (3, 4),
        "third": 1.5,
        "more": {"fourth": "d"},
    }


async def test_positional_and_keyword_arguments_have_one_recorded_form(store: FeatureStore) -> None:
    @context(store)
    def made(user_id: str, question: str = "none") -> str:
        return question

    for ctx in (await made("u1", "why?"), await made(question="why?", user_id="u1")):
        assert (await recorded(store, ctx)).inputs == {"user_id": "u1", "question": "why?"}
    assert (await recorded(store, await made("u1"))).inputs["question"] == "none"


async def test_wrong_arguments_are_refused_before_the_function_runs(store: FeatureStore) -> None:
    @context(store)
    async def made(user_id: str) -> str:
        raise AssertionError("it ran")

    with pytest.raises(InvalidInputError, match="'made': missing a required argument: 'user_id'"):
        await made()  # type: ignore[call-arg]
    with pytest.raises(InvalidInputError, match="unexpected keyword argument 'userid'"):
        await made("u1", userid="u1")  # type: ignore[call-arg]
    with pytest.raises(RecordValueError, match=r"/inputs/user_id: .* type builtins\.object"):
        await made(object())  # type: ignore[arg-type]
    with pytest.raises(RecordValueError, match="/interaction_ref/call"):
        await made.options(interaction_ref={"call": object()})("u1")


async def test_the_record_has_the_arguments_as_they_were_given(store: FeatureStore) -> None:
    @context(store)
    async def made(filters: dict[str, list[str]]) -> str:
        filters["tags"].append("changed")
        return "text"

    ctx = await made({"tags": ["first"]})
    assert (await recorded(store, ctx)).inputs == {"filters": {"tags": ["first"]}}


# Budget

TEN = "one two three four five six seven eight nine ten"


async def test_the_lowest_priority_is_dropped_first_and_order_is_kept(store: FeatureStore) -> None:
    @context(store, max_tokens=12, model="gpt-4o", separator="\n")
    async def made() -> list[ContextItem]:
        return [
            ContextItem("low", priority=1),
            ContextItem(TEN, priority=5),
            ContextItem("high", priority=9),
            ContextItem("must", required=True),
        ]

    ctx = await made()
    assert ctx.content == "high\nmust"
    decisions = [item.decision for item in ctx.lineage.items]
    assert decisions == ["dropped", "dropped", "kept", "kept"]
    assert [item.reason for item in ctx.lineage.items] == [
        "outranked",
        "over_budget",
        "fits",
        "required",
    ]
    assert all(item.short_by > 0 for item in ctx.lineage.items[:2])


async def test_with_backfill_smaller_items_replace_a_larger_one(
    store: FeatureStore,
) -> None:
    @context(store, max_tokens=12, model="gpt-4o", separator="\n", backfill=True)
    async def made() -> list[ContextItem]:
        return [
            ContextItem("low", priority=1),
            ContextItem(TEN * 2, priority=5),
            ContextItem("high", priority=9),
        ]

    assert (await made()).content == "low\nhigh"


async def test_an_item_may_be_cut_with_a_visible_mark(store: FeatureStore) -> None:
    @context(store, max_tokens=8, model="gpt-4o")
    async def made() -> list[ContextItem]:
        return [ContextItem("first"), ContextItem(TEN, priority=-1, truncate=True)]

    ctx = await made()
    assert re.fullmatch(r"first\n\none two .*…", ctx.content)
    assert ctx.tokens <= 8
    assert (ctx.lineage.items_truncated, ctx.lineage.items[1].decision) == (1, "truncated")
    item = (await recorded(store, ctx)).items[1]
    assert item.content == TEN
    assert ctx.content.endswith(str(item.emitted))


async def test_required_items_that_do_not_fit_are_an_error_or_a_flag(store: FeatureStore) -> None:
    async def made() -> list[ContextItem]:
        return [ContextItem(TEN, required=True), ContextItem("more", priority=9)]

    strict = context(store, max_tokens=5, model="gpt-4o", name="strict")(made)
    flagged = context(store, max_tokens=5, model="gpt-4o", name="flagged", on_overflow="flag")(made)
    with pytest.raises(TokenBudgetError) as caught:
        await strict()
    assert (caught.value.available, caught.value.items) == (5, {0: 10})
    ctx = await flagged()
    assert (ctx.content, ctx.meta["overflow"]) == (TEN, True)
    assert (await recorded(store, ctx)).output.overflow


async def test_the_reported_tokens_are_the_count_of_the_text(store: FeatureStore) -> None:
    @context(store, max_tokens=30, model="gpt-4o")
    async def made() -> list[ContextItem]:
        return [ContextItem(f"Sentence {n}." * n, priority=n) for n in range(9)]

    ctx = await made()
    tokens = tokenizer_for("gpt-4o").count(ctx.content)
    assert tokens == ctx.tokens == ctx.lineage.tokens <= 30
    assert (await recorded(store, ctx)).output.tokens == tokens


async def test_a_model_that_is_not_known_is_counted_with_a_margin(store: FeatureStore) -> None:
    @context(store, max_tokens=13, model="a-model-of-tomorrow", on_overflow="flag")
    async def made() -> str:
        return TEN

    ctx = await made()
    assert (ctx.meta["exact"], ctx.meta["overflow"], ctx.cost_nano_usd) == (False, False, None)
    tighter = await made.options(max_tokens=12)()
    assert tighter.meta["overflow"]
    said = (await recorded(store, ctx)).tokenizer
    assert (said.exact, said.margin_percent) == (False, 30)


async def test_costs_are_whole_nano_dollars_or_unknown(store: FeatureStore) -> None:
    async def made() -> str:
        return TEN

    priced = await context(store, model="gpt-4o", name="priced")(made)()
    unpriced = await context(store, name="unpriced")(made)()
    assert priced.cost_nano_usd == priced.lineage.cost_nano_usd == 10 * 2_500
    assert unpriced.cost_nano_usd is None


async def test_configured_prices_are_used(settings: Settings, clock: ManualClock) -> None:
    store = FeatureStore(settings=settings.replace(prices={"ours": "7000000"}), clock=clock)

    @context(store, model="ours")
    async def made() -> str:
        return TEN

    async with store:
        assert (await made()).cost_nano_usd == 70


@pytest.mark.parametrize("wrong", ["cheap", "2.5", -1, 10**15])
def test_an_invalid_price_is_refused(settings: Settings, wrong: int | str) -> None:
    with pytest.raises(ConfigError, match=f"{wrong!r} for 'ours' is not a whole number of nano-"):
        settings.replace(prices={"ours": wrong})


async def test_a_price_in_the_file_is_a_number_and_that_of_a_model_at_any_provider(
    settings: Settings, clock: ManualClock, tmp_path: Path
) -> None:
    prices = '[prices]\n"gpt-4o" = 7000000\n"azure/gpt-4o" = "8000000"\n'
    (tmp_path / "headwater.toml").write_text(prices)
    given = settings.replace(prices=load(environ={}, directory=tmp_path).prices)

    async def made() -> str:
        return TEN

    async with FeatureStore(settings=given, clock=clock) as store:
        for model, cost in (("gpt-4o", 70), ("openai/gpt-4o", 70), ("azure/gpt-4o", 80)):
            declared = context(store, model=model, name=model.replace("/", "_").replace("-", "_"))
            assert (await declared(made)()).cost_nano_usd == cost
    (tmp_path / "headwater.toml").write_text('[prices]\n"gpt-4o" = 2.5\n')
    with pytest.raises(ConfigError, match="it must be a table of names and whole numbers"):
        load(environ={}, directory=tmp_path)


# Overrides, one call's and the interaction's


async def test_a_call_may_tighten_the_budget_and_the_sla(store: FeatureStore) -> None:
    @context(store, max_tokens=50, freshness_sla="1h")
    async def made(user_id: str) -> str:
        return "text"

    for same in (made, made.options(max_tokens=50, freshness_sla="1h")):
        ctx = await same("u1")
        assert (ctx.lineage.max_tokens, ctx.freshness_sla_ms) == (50, 3_600_000)
    ctx = await made.options(max_tokens=5, freshness_sla="1m")("u1")
    assert (ctx.lineage.max_tokens, ctx.freshness_sla_ms) == (5, 60_000)


@pytest.mark.parametrize(
    ("override", "refusal"),
    [
        ({"max_tokens": 51}, "max_tokens=51 is looser than the declared 50"),
        ({"max_tokens": None}, "max_tokens=None is looser than the declared 50"),
        ({"freshness_sla": "2h"}, "freshness_sla=2h is looser than the declared 1h"),
        ({"freshness_sla": None}, "freshness_sla=None is looser than the declared 1h"),
    ],
)
async def test_a_call_may_not_loosen_the_budget_or_the_sla_unless_the_context_allows_it(
    store: FeatureStore, override: dict[str, Any], refusal: str
) -> None:
    ((option, _),) = override.items()

    async def text(user_id: str) -> str:
        return "text"

    limits: dict[str, Any] = {"max_tokens": 50, "freshness_sla": "1h", "freshness_strict": True}
    strict = context(store, name="strict", **limits)(text)
    with pytest.raises(LooserOverrideError, match=refusal) as caught:
        await strict.options(**override)("u1")
    assert isinstance(caught.value, ValueError)
    assert f"declare the context with allow_looser={option!r}" in str(caught.value)
    limits["allow_looser"] = [option]
    lenient = context(store, name="lenient", **limits)(text)
    ctx = await lenient.options(**override)("u1")
    assert ctx.freshness_status == "guaranteed"


async def test_a_context_that_allows_it_may_have_any_budget_and_sla(
    store: FeatureStore, user: type
) -> None:
    @context(
        store,
        max_tokens=50,
        freshness_sla="1h",
        freshness_strict=True,
        model="gpt-4o",
        allow_looser=("max_tokens", "freshness_sla"),
    )
    async def made(user_id: str) -> list[ContextItem]:
        return [ContextItem.template("{plan}", priority=1), ContextItem(TEN)]

    with pytest.raises(FreshnessSLAError):
        await made("u1")
    ctx = await made.options(max_tokens=5, freshness_sla=None)("u1")
    assert (ctx.lineage.max_tokens, ctx.freshness_sla_ms, ctx.is_fresh) == (5, None, True)
    assert ctx.lineage.items_dropped == 1
    policy = (await recorded(store, ctx)).policy
    assert (policy.max_tokens, policy.freshness_sla_ms) == (5, None)
    unlimited = await made.options(max_tokens=None).options(freshness_sla=None)("u1")
    assert (unlimited.lineage.max_tokens, unlimited.lineage.items_dropped) == (None, 0)
    with pytest.raises(FreshnessSLAError) as caught:
        await made.options(freshness_sla="2m")("u1")
    assert caught.value.violations[0].sla_ms == 120_000


async def test_the_interactions_reference_passes_through(store: FeatureStore) -> None:
    reference = {"call_id": "c1", "turn_id": "t1", "turn_index": 3, "voice": {"lang": "de"}}

    @context(store)
    async def made(question: str) -> str:
        return question

    @context(store)
    async def asks(question: str, interaction_ref: dict[str, Any] | None = None) -> str:
        assert interaction_ref == reference
        return question

    given = [
        await made.options(interaction_ref=reference)("why?"),
        await made("why?", interaction_ref=reference),  # type: ignore[call-arg]
        await asks("why?", reference),
        await asks.options(interaction_ref=reference)("why?"),
    ]
    for ctx in given:
        assert ctx.interaction_ref == reference
        assert (await recorded(store, ctx)).interaction_ref == reference
    without = await made("why?")
    assert without.interaction_ref is None
    assert (await recorded(store, without)).interaction_ref is None
    with pytest.raises(InvalidInputError, match="interaction_ref is a mapping"):
        await made("why?", interaction_ref="c1")  # type: ignore[call-arg]


# Ids, texts and what goes wrong


async def test_ids_of_concurrent_assemblies_only_grow(
    store: FeatureStore, settings: Settings, clock: ManualClock
) -> None:
    other = FeatureStore(settings=settings, clock=clock)

    async def made(number: int) -> str:
        return str(number)

    here, there = context(store)(made), context(other)(made)
    async with other:
        contexts = [await (there if n % 2 else here)(n) for n in range(10)]
        contexts += await asyncio.gather(*(here(n) for n in range(20)))
    ids = [ctx.context_id for ctx in contexts]
    assert ids[:10] == sorted(ids[:10])
    assert max(ids[:10]) < min(ids[10:])
    assert len(set(ids)) == 30
    assert {UUID(context_id).version for context_id in ids} == {7}
    assert len({ctx.record_hash for ctx in contexts}) == 30


async def test_a_text_that_utf8_cannot_hold_is_refused(store: FeatureStore) -> None:
    @context(store)
    async def made() -> str:
        return "half a character: \ud83d"

    with pytest.raises(ContextFailedError, match="decode the text with errors='replace'"):
        await made()


@pytest.mark.parametrize(
    "text", ["<|endoftext|>", "", " ", "\x00", "🧑🏽‍🚀", "{a} {0} {{", "a\r\nb"]
)
async def test_any_other_text_is_legal(store: FeatureStore, text: str) -> None:
    @context(store, max_tokens=50, model="gpt-4o")
    async def made(asked: str) -> list[ContextItem]:
        return [ContextItem(asked), ContextItem("end")]

    ctx = await made(text)
    assert ctx.content == (f"{text}\n\nend" if text else "end")
    core = await recorded(store, ctx)
    assert (core.inputs["asked"], core.output.content) == (text, ctx.content)


async def cannot_append(record: object, keys: object, *, checked: int = 0) -> None:
    """Append to a log that cannot be written to."""
    raise BackendError("the disk is full")


async def broken(store: FeatureStore) -> Callable[[], Awaitable[Context]]:
    """A context of a store whose log is broken."""
    engine = await runtime_of(store).open()
    engine.assembler.recorder._append_record = cannot_append  # noqa: SLF001

    @context(store)
    async def made() -> str:
        return "secret text"

    return made


async def test_a_refusal_that_cannot_be_recorded_has_no_id(store: FeatureStore, user: type) -> None:
    await broken(store)

    @context(store, freshness_sla="5m", freshness_strict=True)
    async def strict(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    before = metric("headwater_contexts_unrecorded_total")
    with pytest.raises(FreshnessSLAError) as caught:
        await strict("u1")
    assert caught.value.context_id is None
    assert "recorded" not in str(caught.value)
    assert metric("headwater_contexts_unrecorded_total") == before + 1


async def test_a_log_that_fails_does_not_fail_the_assembly(
    store: FeatureStore, capsys: pytest.CaptureFixture[str]
) -> None:
    before = metric("headwater_contexts_unrecorded_total")
    ctx = await (await broken(store))()
    assert (ctx.content, ctx.meta["recorded"]) == ("secret text", False)
    assert metric("headwater_contexts_unrecorded_total") == before + 1
    said = capsys.readouterr().err
    (record,) = records(said, "context not recorded")
    assert (record["context_id"], record["error"]) == (ctx.context_id, "the disk is full")
    assert "secret text" not in said


async def test_a_failing_log_is_an_error_if_records_are_required(
    settings: Settings, clock: ManualClock
) -> None:
    async with FeatureStore(
        settings=settings.replace(record={"required": True}), clock=clock
    ) as store:
        made = await broken(store)
        with pytest.raises(RecordingError, match="was not recorded: the disk is full"):
            await made()


async def test_a_recorded_context_says_so(store: FeatureStore) -> None:
    @context(store)
    async def made() -> str:
        return "text"

    assert (await made()).meta["recorded"]


async def test_the_vocabulary_and_prices_are_loaded_off_the_loop(store: FeatureStore) -> None:
    @context(store, model="gpt-4o")
    async def made() -> str:
        return "text"

    threads: list[str] = []
    assembler = (await runtime_of(store).open()).assembler
    load = assembler._load_now  # noqa: SLF001

    def noted(model: str | None) -> None:
        threads.append(threading.current_thread().name)
        load(model)

    assembler._load_now = noted  # type: ignore[method-assign] # noqa: SLF001
    await assembler.warm_up()
    await made()
    assert len(threads) == 1
    assert threads != [threading.main_thread().name]
