"""Lineage: everything that a function reads, and nothing of other assemblies."""

from __future__ import annotations

import asyncio
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from time import perf_counter

import msgspec
import pytest

from headwater import (
    Chunk,
    Context,
    ContextItem,
    ContextTrace,
    FeatureStore,
    PastContext,
    ServiceEvent,
    context,
    feature,
    retriever,
)
from headwater.errors import ContextFailedError
from headwater.testing import ManualClock
from tests.contexts.support import recorded


async def visit(store: FeatureStore, *ids: str) -> None:
    for entity_id in ids:
        await store.publish("visit", entity_id, {"plan": f"plan of {entity_id}"})
    await store.drain()


async def test_every_field_of_a_features_lineage_is_measured(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store, freshness_sla="1h")
    async def made(user_id: str) -> str:
        plan: str = await store.get_feature("plan", user_id)
        return plan

    happened = clock.now()
    await visit(store, "u1")
    clock.advance("90s")
    (read,) = (await made("u1")).lineage.features
    assert (read.feature, read.entity, read.entity_id) == ("plan", "User", "u1")
    assert (read.value, read.source, read.fresh) == ("plan of u1", "online", True)
    assert (read.as_of, read.written_at, read.age_ms) == (happened, happened, 90_000)
    clock.advance("1h")
    (read,) = (await made("u1")).lineage.features
    assert (read.age_ms, read.fresh) == (3_690_000, False)


async def test_every_field_of_a_retrievers_lineage_is_measured(
    store: FeatureStore, clock: ManualClock
) -> None:
    @retriever(store, cache_ttl="1h")
    async def search(query: str, limit: int = 3) -> list[Chunk]:
        await asyncio.sleep(0.002)
        return [Chunk(text="one", id="d1", score=0.1), Chunk(text="two", score=1e-7)]

    @context(store, freshness_sla="1m")
    async def made(query: str) -> list[ContextItem]:
        return [ContextItem(found.text, source=found) for found in await search(query)]

    searched, began = clock.now(), perf_counter()
    first = await made("shoes")
    elapsed_ms = (perf_counter() - began) * 1_000
    (read,) = first.lineage.retrievers
    assert (read.retriever, read.arguments) == ("search", {"query": "shoes", "limit": 3})
    assert (read.count, read.cache_hit, read.searched_at) == (2, False, searched)
    assert (read.age_ms, read.fresh) == (0, True)
    assert 2 <= read.latency_ms <= elapsed_ms
    clock.advance("2m")
    began = perf_counter()
    (again,) = (await made("shoes")).lineage.retrievers
    elapsed_ms = (perf_counter() - began) * 1_000
    assert (again.count, again.cache_hit, again.searched_at) == (2, True, searched)
    assert (again.age_ms, again.fresh) == (120_000, False)
    assert 0 < again.latency_ms <= elapsed_ms
    core = await recorded(store, first)
    (search_said,) = core.retrievals
    assert search_said.arguments == {"query": "shoes", "limit": 3}
    assert [(r.id, r.score, r.content) for r in search_said.results] == [
        ("d1", "0.1", "one"),
        (None, "0.0000001", "two"),
    ]
    assert [(i.source.kind, i.source.ref) for i in core.items] == [
        ("retrieval", "d1"),
        ("retrieval", None),
    ]


async def test_every_field_of_a_contexts_lineage_is_measured(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @context(store, max_tokens=9, model="gpt-4o")
    async def made(user_id: str) -> list[ContextItem]:
        await store.get_feature("plan", user_id)
        await asyncio.sleep(0.002)
        return [
            ContextItem("kept", required=True, section="rules"),
            ContextItem("cut at some word that no longer fits", priority=5, truncate=True),
            ContextItem("dropped because of all that", priority=1),
        ]

    await visit(store, "u1")
    clock.advance("3s")
    began = perf_counter()
    ctx = await made("u1")
    elapsed_ms = (perf_counter() - began) * 1_000
    lineage = ctx.lineage
    assert (lineage.items_provided, lineage.items_included) == (3, 2)
    assert (lineage.items_dropped, lineage.items_truncated) == (1, 1)
    assert (lineage.tokens, lineage.max_tokens) == (ctx.tokens, 9)
    assert lineage.cost_nano_usd == ctx.cost_nano_usd == ctx.tokens * 2_500
    assert lineage.stalest_ms == 3_000
    assert 2 <= lineage.assembly_ms <= elapsed_ms
    first, second, third = lineage.items
    assert (first.decision, first.section, first.required) == ("kept", "rules", True)
    assert first.tokens == first.emitted_tokens == 2
    assert 0 < second.emitted_tokens < second.tokens
    assert (third.priority, third.emitted_tokens, third.tokens > 0) == (1, 0, True)
    core = await recorded(store, ctx)
    assert core.timing.assembly_us == round(lineage.assembly_ms * 1000)
    assert core.timing.started_at == core.created_at == clock.now()
    assert (core.environment, core.context.name) == (store.settings.env, "made")
    assert (core.output.items_kept, core.output.items_dropped) == (1, 1)
    assert core.versions.tokenizer


async def test_a_context_that_reads_nothing_has_an_empty_lineage(store: FeatureStore) -> None:
    @context(store, freshness_sla="1s")
    async def made() -> str:
        return "text"

    ctx = await made()
    assert (ctx.lineage.features, ctx.lineage.retrievers, ctx.lineage.contexts) == ([], [], [])
    assert (ctx.lineage.stalest_ms, ctx.is_fresh) == (None, True)


@pytest.mark.parametrize("way", ["one", "many", "read", "sync"])
async def test_every_way_of_reading_a_feature_is_noted(
    store: FeatureStore, user: type, way: str
) -> None:
    @context(store)
    async def one(user_id: str) -> str:
        return str(await store.get_feature("plan", user_id))

    @context(store)
    async def many(user_id: str) -> str:
        return str((await store.get_features(["plan"], [user_id]))[user_id]["plan"])

    @context(store)
    async def read(user_id: str) -> str:
        (row,) = await store.get_feature_values(["plan"], [user_id])
        return str(row["plan"].value)

    @context(store)
    def sync(user_id: str) -> str:
        return str(store.sync.get_feature("plan", user_id))

    await visit(store, "u1")
    ctx = await {"one": one, "many": many, "read": read, "sync": sync}[way]("u1")
    assert ctx.content == "plan of u1"
    assert [(r.feature, r.entity_id, r.value) for r in ctx.lineage.features] == [
        ("plan", "u1", "plan of u1")
    ]


async def test_tasks_of_the_function_are_noted_with_it(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(ids: list[str]) -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(store.get_feature("plan", i)) for i in ids]
        return ", ".join(task.result() for task in tasks)

    await visit(store, "u1", "u2", "u3")
    ctx = await made(["u1", "u2", "u3"])
    assert {read.entity_id for read in ctx.lineage.features} == {"u1", "u2", "u3"}


async def test_the_same_value_read_again_is_noted_once(store: FeatureStore, user: type) -> None:
    @context(store)
    async def made(user_id: str) -> str:
        for _ in range(3):
            await store.get_feature("plan", user_id)
        await store.set_feature("plan", user_id, "platinum")
        return str(await store.get_feature("plan", user_id))

    await visit(store, "u1")
    ctx = await made("u1")
    assert [read.value for read in ctx.lineage.features] == ["plan of u1", "platinum"]


async def test_the_record_has_values_as_they_were_read(store: FeatureStore, user: type) -> None:
    @feature(entity=user, trigger="tag")
    async def tags(user_id: str, event: ServiceEvent) -> list[str]:
        return ["first"]

    @context(store)
    async def made(user_id: str) -> str:
        found: list[str] = await store.get_feature("tags", user_id)
        found.append("changed by the function")
        return "text"

    await store.publish("tag", "u1")
    await store.drain()
    ctx = await made("u1")
    assert ctx.lineage.features[0].value == ["first"]
    assert (await recorded(store, ctx)).features[0].value == ["first"]


class Colour(Enum):
    RED = "red"


class Seat(msgspec.Struct):
    row: int
    at: time
    colour: Colour
    since: date
    price: Decimal
    lasts: timedelta
    moves: tuple[int, ...]


async def test_values_of_every_type_that_a_feature_may_have_are_recorded(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    seat = Seat(3, time(8, 30), Colour.RED, date(2026, 1, 2), Decimal("1.10"), timedelta(1), (1, 2))

    @feature(entity=user)
    def own(user_id: str) -> Seat:
        return seat

    @feature(entity=user)
    def colour(user_id: str) -> Colour:
        return Colour.RED

    @feature(entity=user)
    def met(user_id: str) -> datetime:
        return clock.now()

    @context(store)
    async def made(user_id: str) -> str:
        return str(await store.get_features(["own", "colour", "met"], [user_id]))

    ctx = await made("u1")
    values = [read.value for read in (await recorded(store, ctx)).features]
    assert [read.value for read in ctx.lineage.features] == values
    assert values == [
        {
            "row": 3,
            "at": "08:30:00",
            "colour": "red",
            "since": date(2026, 1, 2),
            "price": Decimal("1.10"),
            "lasts": timedelta(1),
            "moves": (1, 2),
        },
        "red",
        clock.now(),
    ]


# Assemblies at the same time


async def test_assemblies_at_the_same_time_never_mix_their_lineage(
    store: FeatureStore, user: type
) -> None:
    @retriever(store)
    async def search(query: str) -> list[str]:
        await asyncio.sleep(0)
        return [f"doc about {query}"]

    @context(store)
    async def made(user_id: str) -> list[ContextItem]:
        await asyncio.sleep(0)
        plan = await store.get_feature("plan", user_id)
        (found,) = await search(plan)
        return [ContextItem.template("{visits}"), ContextItem(found.text, source=found)]

    @context(store)
    def made_in_a_thread(user_id: str) -> list[ContextItem]:
        plan = store.sync.get_feature("plan", user_id)
        (found,) = store.sync.run(search(plan))
        return [ContextItem.template("{visits}"), ContextItem(found.text, source=found)]

    ids = [f"u{number}" for number in range(50)]
    await visit(store, *ids)
    contexts = await asyncio.gather(*map(made, ids), *map(made_in_a_thread, ids))
    for entity_id, ctx in zip([*ids, *ids], contexts, strict=True):
        lineage = ctx.lineage
        assert ctx.content == f"1\n\ndoc about plan of {entity_id}"
        assert {(read.feature, read.entity_id) for read in lineage.features} == {
            ("plan", entity_id),
            ("visits", entity_id),
        }
        assert [read.arguments for read in lineage.retrievers] == [
            {"query": f"plan of {entity_id}"}
        ]
    cores = [await recorded(store, ctx) for ctx in contexts]
    assert [core.inputs["user_id"] for core in cores] == [*ids, *ids]
    assert all({r.entity_id for r in c.features} == {c.inputs["user_id"]} for c in cores)


async def test_reads_after_the_function_has_returned_belong_to_no_context(
    store: FeatureStore, user: type
) -> None:
    late: list[asyncio.Task[object]] = []
    over = asyncio.Event()

    async def linger() -> None:
        await over.wait()
        await store.get_feature("visits", "u1")

    @context(store)
    async def made(user_id: str) -> str:
        late.append(asyncio.create_task(linger()))
        return str(await store.get_feature("plan", user_id))

    ctx = await made("u1")
    over.set()
    await late[0]
    assert [read.feature for read in ctx.lineage.features] == ["plan"]
    assert [read.feature for read in (await recorded(store, ctx)).features] == ["plan"]


# Contexts inside contexts


async def test_a_context_inside_another_is_in_its_lineage(store: FeatureStore, user: type) -> None:
    kept: list[Context] = []

    @context(store)
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store)
    async def outer(user_id: str) -> list[ContextItem]:
        kept.append(await inner(user_id))
        return [ContextItem(str(kept[-1]), source=kept[-1]), ContextItem("more")]

    await visit(store, "u1")
    ctx = await outer("u1")
    assert ctx.content == "plan of u1\n\nmore"
    assert ctx.lineage.features == []
    (nested,) = ctx.lineage.contexts
    assert (nested.context_id, nested.record_hash) == (kept[0].context_id, kept[0].record_hash)
    assert (nested.name, nested.freshness_status) == ("inner", "guaranteed")
    assert nested.context_id < ctx.context_id
    core = await recorded(store, ctx)
    assert (core.contexts[0].record_hash, core.contexts[0].name) == (nested.record_hash, "inner")
    assert (core.items[0].source.kind, core.items[0].source.ref) == ("context", nested.context_id)


async def test_a_sync_function_assembles_and_searches_through_the_blocking_verbs(
    store: FeatureStore,
) -> None:
    @retriever(store)
    def search(query: str) -> list[str]:
        return [query.upper()]

    @context(store)
    def inner(query: str) -> str:
        return store.sync.run(search(query))[0].text

    @context(store)
    def outer(query: str) -> str:
        return f"<{store.sync.run(inner(query))}>"

    ctx = await outer("shoes")
    assert ctx.content == "<SHOES>"
    assert [nested.name for nested in ctx.lineage.contexts] == ["inner"]
    assert ctx.lineage.retrievers == []


async def test_where_an_item_comes_from_is_recorded_or_refused(store: FeatureStore) -> None:
    @context(store)
    async def made(source: str) -> ContextItem:
        known = {"text": "page 3", "map": {"page": 3}, "object": object()}
        return ContextItem("text", source=known[source])

    for source, ref in (("text", "page 3"), ("map", {"page": 3})):
        item = (await recorded(store, await made(source))).items[0]
        assert (item.source.kind, item.source.ref) == ("other", ref)
    with pytest.raises(ContextFailedError, match="/items/0/source/ref"):
        await made("object")


# A live context and its record


async def test_a_live_context_and_its_record_agree_in_every_field(
    store: FeatureStore, user: type, clock: ManualClock
) -> None:
    @retriever(store)
    async def search(query: str) -> list[Chunk]:
        return [Chunk(text="found", id="d1", score=0.25)]

    @context(store)
    async def inner(user_id: str) -> ContextItem:
        return ContextItem.template("{plan}")

    @context(store, max_tokens=12, freshness_sla="1s", model="gpt-4o")
    async def made(user_id: str, interaction_ref: dict[str, object]) -> list[ContextItem]:
        await store.get_features(["plan", "visits"], [user_id, "unknown"])
        nested = await inner(user_id)
        (found,) = await search("shoes")
        return [
            ContextItem("kept", required=True, section="rules"),
            ContextItem(found.text, source=found, priority=9),
            ContextItem(str(nested), source=nested, priority=8),
            ContextItem("cut at some word that no longer fits", priority=5, truncate=True),
            ContextItem("dropped because of all that", priority=1),
        ]

    await visit(store, "u1")
    clock.advance("90s")
    live = await made("u1", {"call_id": "c1", "at": clock.now(), "turn": (1, 2)})
    past, trace = (
        await store.get_context_at(live.context_id),
        await store.records.explain(live.context_id),
    )
    assert {violation.reason for violation in live.freshness_violations} == {
        "stale",
        "missing",
        "default",
    }
    for name in Context.__struct_fields__:
        assert getattr(live, name) == getattr(past, name), name
    for name in set(PastContext.__struct_fields__) & set(ContextTrace.__struct_fields__):
        assert getattr(past, name) == getattr(trace, name), name
