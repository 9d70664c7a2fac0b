"""The card of one declaration: its code and options, its place in the graph, and its activity."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median_low
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.core.clock import from_micros, to_micros
from headwater.declarations.code_uses import source_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.runtime import runtime_of
from headwater.engine.engine import Engine
from headwater.errors import UnknownNameError
from headwater.features.refresh_outcomes import RefreshOutcomes
from headwater.features.schedule import last_due, next_due
from headwater.model.callers import Caller, CallerLimits
from headwater.model.declarations import (
    ContextListing,
    EntityListing,
    EventListing,
    FeatureListing,
    FoundIn,
    Graph,
    IndexListing,
    Node,
    RetrieverListing,
)
from headwater.ports import RecordQuery
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import (
    LISTED,
    DeclarationKind,
    listing_of,
    publishable,
    visible_graph,
    visible_names,
)
from headwater.store.runtime import Runtime

LONGEST_CODE = 20_000
SAMPLED_ENTITIES = 200
SAMPLED_LETTERS = 500

CardKind = Annotated[DeclarationKind, Meta(description="The kind.", examples=["feature"])]


class FunctionCode(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a function; ``is_cut`` is whether only its beginning is shown."""

    text: str
    is_cut: bool


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the graph that is next to a declaration, and where the dependency was found."""

    node: Node
    found_in: FoundIn


class ValueSample(msgspec.Struct, frozen=True, kw_only=True):
    """The stored values of a feature for some entities: the first ones by id.

    ``is_complete`` is whether these are all entities. Ages count from ``as_of``; ``within_sla`` is
    the number of values that are not older than the SLA of the feature, if it has one.
    """

    entities: int
    is_complete: bool
    values: int
    expired: int
    newest_age_ms: int | None = None
    median_age_ms: int | None = None
    oldest_age_ms: int | None = None
    within_sla: int | None = None
    last_written_at: datetime | None = None


class CardSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """When a scheduled feature was last due, and when it is due again."""

    last_due: datetime
    next_due: datetime


class LetterCount(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a feature among the newest; ``is_complete`` is whether these are all."""

    count: int
    is_complete: bool


class RefreshFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Since when the runs of a scheduled feature fail; the error is for administrators."""

    since: datetime
    error: str | None


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the values, runs and errors of a declaration; null is not known.

    ``last_run_at`` is when a value of the sample was last written, or a context last recorded.
    """

    values: ValueSample | None = None
    schedule: CardSchedule | None = None
    refresh_failure: RefreshFailure | None = None
    last_run_at: datetime | None = None
    dead_letters: LetterCount | None = None


class DeclarationCard(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration: one of the listings is that of its kind; sources have none.

    ``providers`` are what it needs and ``consumers`` what needs it, directly; the counts are of
    all of them, directly or not. ``breaker_open`` is null if no process knows.
    """

    kind: DeclarationKind
    name: str
    declared_at: str | None = None
    code: FunctionCode | None = None
    entity: EntityListing | None = None
    event: EventListing | None = None
    feature: FeatureListing | None = None
    index: IndexListing | None = None
    retriever: RetrieverListing | None = None
    context: ContextListing | None = None
    providers: Sequence[Neighbour] = ()
    consumers: Sequence[Neighbour] = ()
    provider_count: int = 0
    consumer_count: int = 0
    activity: Activity = Activity()
    breaker_open: bool | None = None


def card_of(
    store: FeatureStore, kind: DeclarationKind, name: str, caller: Caller | None
) -> DeclarationCard:
    """Return the card of a declaration without its activity, as far as a caller may see it."""
    registry = runtime_of(store).registry
    names = visible_names(registry, caller)
    if name not in names[kind]:
        is_limited = caller is not None and caller.limits is not None
        raise UnknownNameError(kind, name, None if is_limited else names[kind])
    graph, node_id = visible_graph(store, names), f"{kind}:{name}"
    card: dict[str, Any] = {}
    if kind == "event" and name not in publishable(registry, caller):
        card["event"] = EventListing(name=name)
    elif kind in LISTED:
        card = _described(store, kind, name)
    if caller is not None and caller.limits is not None:
        card["code"] = None  # its literals may be of parts of the store that the caller may not use
    if kind == "entity":
        nodes = [node for node in graph.nodes if node.entity == name]
        consumers = [Neighbour(node=node, found_in="declaration") for node in nodes]
        return DeclarationCard(
            kind=kind, name=name, consumers=consumers, consumer_count=len(nodes), **card
        )
    return DeclarationCard(
        kind=kind,
        name=name,
        providers=_neighbours(
            graph, {e.source: e.found_in for e in graph.edges if e.target == node_id}
        ),
        consumers=_neighbours(
            graph, {e.target: e.found_in for e in graph.edges if e.source == node_id}
        ),
        provider_count=_reachable(node_id, [(e.target, e.source) for e in graph.edges]),
        consumer_count=_reachable(node_id, [(e.source, e.target) for e in graph.edges]),
        **card,
    )


def _neighbours(graph: Graph, places: Mapping[str, FoundIn]) -> list[Neighbour]:
    return [
        Neighbour(node=node, found_in=places[node.id]) for node in graph.nodes if node.id in places
    ]


def _reachable(start: str, steps: Iterable[tuple[str, str]]) -> int:
    """Return how many other nodes can be reached."""
    following: dict[str, list[str]] = {}
    for source, target in steps:
        following.setdefault(source, []).append(target)
    seen, waiting = {start}, [start]
    while waiting:
        for node in following.get(waiting.pop(), ()):
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return len(seen) - 1


def _described(store: FeatureStore, kind: DeclarationKind, name: str) -> dict[str, Any]:
    """Return where something is declared, its listing, and the source of its function."""
    definition = LISTED[kind].definitions(runtime_of(store).registry)[name]
    code = None
    if kind in ("feature", "retriever", "context"):
        source = source_of(inspect.unwrap(definition.function))
        code = source and FunctionCode(
            text=source[:LONGEST_CODE].rstrip(), is_cut=len(source) > LONGEST_CODE
        )
    listing = listing_of(store, kind, name)
    return {"declared_at": str(definition.location), "code": code or None, kind: listing}


async def activity_of(
    runtime: Runtime, kind: DeclarationKind, name: str, caller: Caller | None
) -> Activity:
    """Return the activity of a declaration, as far as the caller may know it."""
    engine = await runtime.open()
    if kind == "feature":
        return await _of_feature(engine, engine.registry.feature(name), caller)
    if kind == "context" and (caller is None or (caller.may("records") and not caller.limits)):
        latest = await engine.backends.records.records(RecordQuery(name=name, limit=1))
        return Activity(last_run_at=latest[0].created_at if latest else None)
    return Activity()


async def _of_feature(engine: Engine, feature: FeatureDef, caller: Caller | None) -> Activity:
    now, limits = engine.clock.now(), None if caller is None else caller.limits
    values = failure = letters = schedule = None
    if feature.kept:
        values = await _sample(engine, feature, now, limits or CallerLimits())
    if feature.triggers and limits is None:
        letters = await _letters(engine, feature.series)
    if feature.refresh is not None:
        schedule = CardSchedule(last_due=last_due(feature, now), next_due=next_due(feature, now))
        if limits is None:
            has_error = caller is None or caller.may("admin")
            failure = await _refresh_failure(engine, feature.name, has_error=has_error)
    return Activity(
        values=values,
        schedule=schedule,
        refresh_failure=failure,
        last_run_at=values.last_written_at if values else None,
        dead_letters=letters,
    )


async def _refresh_failure(engine: Engine, name: str, *, has_error: bool) -> RefreshFailure | None:
    outcome = (await RefreshOutcomes(engine.backends.notes, engine.clock).read([name]))[name]
    if outcome.failing_since is None:
        return None
    return RefreshFailure(since=outcome.failing_since, error=outcome.error if has_error else None)


async def _sample(
    engine: Engine, feature: FeatureDef, now: datetime, limits: CallerLimits
) -> ValueSample:
    online, entity = engine.backends.online, feature.entity.name
    ids = await online.entity_ids(entity, after=limits.tenant, limit=SAMPLED_ENTITIES)
    ids = [entity_id for entity_id in ids if limits.allow_id(entity_id)]
    rows = await online.get(entity, ids) if ids else []
    cells, micros = [row[feature.series] for row in rows if feature.series in row], to_micros(now)
    valid = [cell for cell in cells if not cell.expired(micros)]
    ages = sorted(max(0, micros - cell.as_of) // 1_000 for cell in valid)
    sla = feature.freshness_sla
    limit = None if sla is None else sla.total_seconds() * 1_000
    return ValueSample(
        entities=len(ids),
        is_complete=len(ids) < SAMPLED_ENTITIES,
        values=len(valid),
        expired=len(cells) - len(valid),
        newest_age_ms=ages[0] if ages else None,
        median_age_ms=median_low(ages) if ages else None,
        oldest_age_ms=ages[-1] if ages else None,
        within_sla=None if limit is None else sum(age <= limit for age in ages),
        last_written_at=from_micros(max(c.written_at for c in cells)) if cells else None,
    )


async def _letters(engine: Engine, series: str) -> LetterCount:
    letters = engine.backends.dead_letters
    if not await letters.count():
        return LetterCount(count=0, is_complete=True)
    newest = await letters.summaries(SAMPLED_LETTERS)
    count = sum(letter.feature == series for letter in newest)
    return LetterCount(count=count, is_complete=len(newest) < SAMPLED_LETTERS)
