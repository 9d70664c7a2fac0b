"""Replays that run the function again: their reads, their arguments and refused writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from headwater import ContextItem, ServiceEvent, context, feature, retriever
from headwater.declarations.contexts import ContextFunction
from headwater.declarations.runtime import runtime_of
from headwater.errors import InvalidInputError, ReplayWriteError
from headwater.model.callers import Caller, ScopeError, current_caller, set_caller
from headwater.model.contexts import Mode
from headwater.testing import ManualClock
from tests.contexts.recorded.shop import Shop

RUNS_AGAIN: list[Mode] = ["as_of", "live"]


async def kept(shop: Shop) -> int:
    return len((await shop.store.list_contexts()).contexts)


async def waiting(shop: Shop) -> int:
    return sum(part.waiting for part in await shop.store.admin.lag())


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_a_caller_without_the_scope_of_an_assembly_runs_no_function_again(
    shop: Shop, mode: Mode
) -> None:
    made = await shop.asks()
    before = current_caller()
    set_caller(Caller("reader", frozenset({"records"})))
    try:
        with pytest.raises(ScopeError, match="'reader' does not have the scope 'assemble'"):
            await shop.store.replay(made.context_id, mode)
        assert (await shop.store.replay(made.context_id, "reassemble")).matches is True
    finally:
        set_caller(before)


# Reads


async def test_as_of_reads_a_value_whose_event_was_ahead_of_the_clock(
    shop: Shop, clock: ManualClock
) -> None:
    await shop.spends("u1", 1)
    clock.advance("1s")
    ahead = clock.now() + timedelta(seconds=30)
    await shop.store.publish("buy", "u1", {"amount": 2}, timestamp=ahead)
    await shop.store.drain()
    made = await shop.asks()
    assert "Spent so far: 2" in made.content
    assert (await shop.store.replay(made.context_id, "as_of")).matches is True
    clock.advance("2m")
    await shop.spends("u1", 3)
    then = await shop.store.replay(made.context_id, "as_of")
    assert (then.content, then.matches) == (made.content, True)


async def test_as_of_repeats_reads_of_a_value_that_changed_during_the_call(
    shop: Shop, clock: ManualClock
) -> None:
    changing = True

    @context(shop.store)
    async def slow(user_id: str) -> str:
        before = await shop.store.get_feature("total", user_id)
        if changing:
            clock.advance("1s")
            await shop.spends(user_id, 2)
            clock.advance("1s")
        after = await shop.store.get_feature("total", user_id)
        return f"{before}, then {after}"

    await shop.spends("u1", 1)
    clock.advance("1s")
    made = await slow("u1")
    changing = False
    clock.advance("1m")
    await shop.spends("u1", 3)
    then = await shop.store.replay(made.context_id, "as_of")
    assert (made.content, then.content) == ("1, then 2", "1, then 2")
    assert "features as the record says they were read" in then.fidelity


async def test_as_of_ignores_values_written_during_the_call(shop: Shop, clock: ManualClock) -> None:
    @feature(entity=shop.user, template="of {name}")
    def card(user_id: str) -> str:
        raise NotImplementedError

    changing = True

    @context(shop.store)
    async def slow(user_id: str) -> str:
        total = await shop.store.get_feature("total", user_id)
        text = await shop.store.get_feature("card", user_id)
        if changing:
            clock.advance("1s")
            await shop.spends(user_id, 2, "Bob")
        return f"{total} {text}"

    await shop.store.set_feature("name", "u1", "Ann")
    made = await slow("u1")
    changing = False
    then = await shop.store.replay(made.context_id, "as_of")
    assert (made.content, then.content) == ("None of Ann", "None of Ann")


async def test_as_of_reads_the_on_demand_value_that_was_computed_then(
    shop: Shop, clock: ManualClock
) -> None:
    runs = 0

    @feature(entity=shop.user, ttl="1h")
    async def rank(user_id: str) -> int:
        nonlocal runs
        runs += 1
        clock.advance("1s")
        return runs

    @context(shop.store)
    async def ranked(user_id: str) -> str:
        return str(await shop.store.get_feature("rank", user_id))

    made = await ranked("u1")
    clock.advance("2h")
    assert (await ranked("u1")).content == "2"
    assert (await shop.store.replay(made.context_id, "as_of")).content == "1"
    assert runs == 2


# Arguments


class Question(msgspec.Struct):
    """A question with its urgency."""

    text: str
    urgent: bool = False


class Renamed(msgspec.Struct, rename="camel"):
    """A Struct whose fields have other names in JSON."""

    first_name: str


class Listed(msgspec.Struct, array_like=True):
    """A Struct that is a list in JSON."""

    number: int


@dataclass
class Order:
    """A dataclass with another inside."""

    lines: list[Question]
    of: Renamed


@dataclass
class Mixed:
    """A dataclass with a renamed Struct beside dicts."""

    of: Renamed
    counts: dict[str, int]
    rows: list[dict[str, int]]


class Counted(msgspec.Struct, rename="camel"):
    """A renamed Struct with a dict and another inside."""

    all_counts: dict[str, int]
    written_by: Renamed | None = None


class Apple(msgspec.Struct, tag="apple", rename="camel"):
    """One of two Structs that JSON tells apart by a tag."""

    main_color: str


class Pear(msgspec.Struct, tag="pear", rename="camel"):
    """The other one."""

    main_color: str
    stem_length: int = 0


class Narrow(msgspec.Struct):
    text: str


class Wider(msgspec.Struct):
    text: str
    mood: str


class Checked(msgspec.Struct):
    text: str

    def __post_init__(self) -> None:
        raise ValueError(f"{self.text!r} is not an answer")


class Recorded(msgspec.Struct):
    text: str
    when: str
    of: Narrow


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_objects_come_back_in_the_types_that_the_function_annotates(
    shop: Shop, mode: Mode
) -> None:
    @context(shop.store)
    def objects(
        question: Question,
        order: Order,
        maybe: Question | None,
        named: dict[str, Renamed],
        *more: Listed,
        **rest: Question,
    ) -> str:
        lines = [line.text for line in order.lines]
        return repr((question, lines, maybe, named, order.of.first_name, more, rest))

    question = Question("Where?", urgent=True)
    order = Order([Question("a"), Question("b")], Renamed("Ann"))
    made = await objects(question, order, None, {}, Listed(1), Listed(2), other=Question("c"))
    again = await shop.store.replay(made.context_id, mode)
    assert (again.content, again.matches) == (made.content, True)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (dict[str, Renamed], {"a": Renamed("Ann")}),
        (dict[str, list[Renamed]], {"a": [Renamed("Ann")]}),
        (tuple[Renamed, dict[str, int]], (Renamed("Ann"), {"first_name": 1})),
        (list[dict[int, Renamed | None]], [{1: Renamed("Ann"), 2: None}]),
        (Renamed | int, Renamed("Ann")),
        (dict[str, Listed], {"a": Listed(1)}),
        (Mixed, Mixed(Renamed("Ann"), {"first_name": 1}, [{"firstName": 2}])),
        (Counted, Counted({"first_name": 1}, Renamed("Ann"))),
        (dict[str, Any], {"a": {"first_name": 1, "firstName": 2}}),
        (list[Pear | Apple], [Apple("red"), Pear("green", 1)]),
        (Question | Renamed | None, Renamed("Ann")),
        (Renamed | dict[str, int], Renamed("Ann")),
        (Sequence[Renamed], (Renamed("Ann"),)),
        (Mapping[str, Sequence[Renamed]], {"a": [Renamed("Ann")], "b": (Renamed("Bob"),)}),
    ],
)
async def test_renamed_fields_come_back_in_every_container(
    shop: Shop, kind: Any, value: object
) -> None:
    def asked(question: Any) -> str:
        return repr(question)

    asked.__annotations__["question"] = kind
    made = await context(shop.store)(asked)(value)
    again = await shop.store.replay(made.context_id, "as_of")
    assert (again.content, again.matches) == (repr(value), True)


async def test_of_two_classes_with_equal_fields_the_one_that_accepts_them_comes_back(
    shop: Shop,
) -> None:
    @context(shop.store)
    def asked(question: Narrow | Checked) -> str:
        return type(question).__name__

    made = await asked(Narrow("Why?"))
    assert (await shop.store.replay(made.context_id, "as_of")).content == "Narrow"


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_annotations_do_not_convert_replayed_arguments(shop: Shop, mode: Mode) -> None:
    @context(shop.store)
    def loose(amount: float, code: str, when: datetime, what: object, *rest: int) -> str:
        return repr((amount, code, when, what, rest))

    call: Any = loose
    made = await call(1, 7, "2026-01-01T00:00", {"a": (1, 2)}, "x")
    again = await shop.store.replay(made.context_id, mode)
    told = "(1, 7, '2026-01-01T00:00', {'a': (1, 2)}, ('x',))"
    assert (again.content, again.matches) == (told, True)


async def test_a_changed_class_accepts_recorded_fields(shop: Shop) -> None:
    class Wide(msgspec.Struct):
        text: str
        when: str
        of: Narrow
        mood: str = "calm"

    assert await _again(shop, Wide) == "Wide Why?"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"text": str, "of": Narrow}, "it has no field 'when' now; add it again"),
        ({"mood": str}, "it requires 'mood', which was not recorded; give it a default"),
        ({"when": datetime}, "'when' was recorded as str and is datetime now; accept both types"),
        ({"when": int}, "'when' was recorded as str and is int now; accept both types"),
        ({"when": list[str]}, "'when' was recorded as str and is list[str] now; accept both types"),
        ({"of": Wider}, "in 'of', it requires 'mood', which was not recorded; give it a default"),
        ({"of": Checked}, "in 'of', 'Why?' is not an answer; accept the recorded values again"),
    ],
)
async def test_a_changed_class_that_does_not_fit_is_explained(
    shop: Shop, fields: dict[str, Any], said: str
) -> None:
    told = {"text": str, "when": str, "of": Narrow} | fields if "text" not in fields else fields
    kinds = (msgspec.defstruct("Q", list(told.items())), make_dataclass("Q", list(told.items())))
    for kind in kinds:
        with pytest.raises(InvalidInputError) as refused:
            await _again(shop, kind)
        assert str(refused.value).startswith(
            "context 'asked' was recorded with 'question' of the fields text, when, of, which "
            f"do not fit today's Q: {said}"
        )


async def _again(shop: Shop, kind: type) -> str | None:
    """A context that was called with one type, and runs again when its function takes another."""

    def asked(question: Any) -> str:
        return f"{type(question).__name__} {question.text}"

    def declared(kind: type) -> ContextFunction[Any]:
        asked.__annotations__["question"] = kind
        runtime_of(shop.store).registry.contexts.pop("asked", None)
        return context(shop.store)(asked)

    made = await declared(Recorded)(Recorded("Why?", "2026-01-15T09:30:00Z", Narrow("Why?")))
    declared(kind)
    return (await shop.store.replay(made.context_id, "live")).content


# What a replay may not do


Change = Callable[[Shop], Awaitable[object]]

CHANGES: dict[str, Change] = {
    "set_feature": lambda shop: shop.store.set_feature("total", "u1", 777),
    "publish": lambda shop: shop.store.publish("buy", "u1", {"amount": 777}),
    "redrive": lambda shop: shop.store.dead_letters.redrive("unknown"),
    "discard": lambda shop: shop.store.dead_letters.discard("unknown"),
    "index": lambda shop: shop.store.index("docs", "a", "text"),
    "unindex": lambda shop: shop.store.unindex("docs", "a"),
    "load": lambda shop: shop.store.indexes.load("docs", []),
    "retain": lambda shop: shop.store.indexes.retain("docs", []),
    "reindex": lambda shop: shop.store.indexes.reindex("docs"),
    "drop": lambda shop: shop.store.indexes.drop("docs"),
    "drain": lambda shop: shop.store.drain(),
    "rebuild": lambda shop: shop.store.admin.rebuild(),
    "redact": lambda shop: shop.store.records.redact("unknown", "/inputs/a", reason="none"),
}


@pytest.mark.parametrize("mode", RUNS_AGAIN)
@pytest.mark.parametrize("verb", CHANGES)
async def test_writes_of_a_replayed_function_are_refused(shop: Shop, verb: str, mode: Mode) -> None:
    replayed = False

    @context(shop.store)
    async def meddling(user_id: str) -> str:
        if replayed:
            await CHANGES[verb](shop)
        return "done"

    await shop.spends("u1", 3)
    made = await meddling("u1")
    replayed = True
    with pytest.raises(ReplayWriteError, match=f"{verb} is not allowed in a replay"):
        await shop.store.replay(made.context_id, mode)
    assert await shop.store.get_feature("total", "u1") == 3
    assert await waiting(shop) == 0


async def test_writes_through_the_bus_or_from_a_thread_are_refused(shop: Shop) -> None:
    @context(shop.store)
    def from_a_thread(user_id: str) -> str:
        shop.store.sync.set_feature("total", user_id, 777)
        return "done"

    @context(shop.store)
    async def by_the_bus(user_id: str) -> str:
        await shop.store.bus.publish(ServiceEvent("buy", user_id, {"amount": 777}))
        return "done"

    for declared in (from_a_thread, by_the_bus):
        made = await declared("u1")
        await shop.store.drain()
        await shop.spends("u1", 3)
        with pytest.raises(ReplayWriteError):
            await shop.store.replay(made.context_id, "live")
        assert await shop.store.get_feature("total", "u1") == 3
        assert await waiting(shop) == 0


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_an_external_context_inside_a_replay_is_not_recorded(shop: Shop, mode: Mode) -> None:
    @context(shop.store)
    async def quoting(text: str) -> str:
        return (
            await shop.store.record_external(name="elsewhere", content=f"made of {text}")
        ).content

    made = await quoting("a")
    before = await kept(shop)
    again = await shop.store.replay(made.context_id, mode)
    assert (again.content, again.matches) == ("made of a", True)
    assert await kept(shop) == before == 2


async def test_values_computed_for_a_live_replay_are_not_stored(shop: Shop) -> None:
    runs = 0

    @feature(entity=shop.user, ttl="1h")
    def rank(user_id: str) -> int:
        nonlocal runs
        runs += 1
        return runs

    @context(shop.store)
    async def ranked(user_id: str) -> str:
        return str(await shop.store.get_feature("rank", user_id) if runs else 0)

    made = await ranked("u1")
    runs = 5
    assert (await shop.store.replay(made.context_id, "live")).content == "6"
    assert (await ranked("u1")).content == "7"
    assert (await shop.store.replay(made.context_id, "live")).content == "7"


async def test_a_live_replay_bypasses_the_cache_of_retrievers(shop: Shop) -> None:
    found = ["old"]

    @retriever(shop.store, cache_ttl="1h")
    def offers(question: str) -> list[str]:
        return list(found)

    @context(shop.store)
    async def advert(question: str) -> list[ContextItem]:
        return [ContextItem(offer.text) for offer in await offers(question)]

    made = await advert("boots")
    found[0] = "new"
    now = await shop.store.replay(made.context_id, "live")
    assert (now.content, now.matches) == ("new", False)
    assert now.context is not None
    assert [call.cache_hit for call in now.context.lineage.retrievers] == [False]
    assert "retrievers called now" in now.fidelity
    assert (await advert("boots")).content == "old"


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_a_replay_reports_indirect_calls_of_retrievers(shop: Shop, mode: Mode) -> None:
    @retriever(shop.store)
    def offers(question: str) -> list[str]:
        return ["an offer"]

    @feature(entity=shop.user)
    async def offer(user_id: str) -> str:
        return (await offers(user_id))[0].text

    @context(shop.store)
    async def inner(user_id: str) -> str:
        return (await offers(user_id))[0].text

    @context(shop.store)
    async def by_context(user_id: str) -> str:
        return (await inner(user_id)).content

    @context(shop.store)
    async def by_feature(user_id: str) -> str:
        return str(await shop.store.get_feature("offer", user_id))

    @context(shop.store)
    async def without(user_id: str) -> str:
        return "no offer"

    for declared, asked in (
        (inner, True),
        (by_context, True),
        (by_feature, True),
        (without, False),
    ):
        made = await declared("u1")
        again = await shop.store.replay(made.context_id, mode)
        assert ("retrievers called now" in again.fidelity) is asked


@pytest.mark.parametrize("mode", RUNS_AGAIN)
async def test_a_replay_is_in_the_provenance_and_no_lineage_of_the_context_around_it(
    shop: Shop, mode: Mode
) -> None:
    @context(shop.store)
    async def quoting(context_id: str) -> str:
        return str((await shop.store.replay(context_id, mode)).content)

    await shop.spends("u1", 3)
    made = await shop.asks()
    quoted = await quoting(made.context_id)
    assert quoted.content == made.content
    lineage = quoted.lineage
    assert (lineage.contexts, lineage.features, lineage.retrievers) == ([], [], [])
    # It has read what the record is about, as a context that reads the record itself.
    found = await shop.store.records.find(entity_id="u1", oldest_first=True)
    assert [each.context_id for each in found.contexts] == [made.context_id, quoted.context_id]
