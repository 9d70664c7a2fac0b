"""The card of one declaration: its code and options, its place in the graph, and its activity."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from headwater.declarations.code_uses import source_of
from headwater.declarations.registry import Registry
from headwater.declarations.runtime import runtime_of
from headwater.errors import UnknownNameError
from headwater.errors.hints import Location
from headwater.model.callers import Caller
from headwater.model.declarations import (
    ContextListing,
    EntityListing,
    FeatureListing,
    FoundIn,
    Graph,
    IndexListing,
    Node,
    RetrieverListing,
)
from headwater.store.activity import Activity
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import (
    declared_context,
    declared_entity,
    declared_feature,
    declared_index,
    declared_retriever,
    visible_graph,
)
from headwater.store.visible_names import DeclarationKind, visible_names

LONGEST_CODE = 20_000

CardKind = Annotated[DeclarationKind, Meta(description="The kind.", examples=["feature"])]


class FunctionCode(msgspec.Struct, frozen=True, kw_only=True):
    """The source of a function; ``is_cut`` is whether only its beginning is shown."""

    text: str
    is_cut: bool


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the graph that is next to a declaration, and where the dependency was found."""

    node: Node
    found_in: FoundIn


class DeclarationCard(msgspec.Struct, frozen=True, kw_only=True):
    """A declaration: one of the listings is that of its kind; event types and sources have none.

    ``providers`` are what it needs and ``consumers`` what needs it, directly; the counts are of
    all of them, directly or not. ``breaker_open`` is null if no process knows.
    """

    kind: DeclarationKind
    name: str
    declared_at: str | None = None
    code: FunctionCode | None = None
    entity: EntityListing | None = None
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
    card = _DESCRIBED[kind](registry, name) if kind in _DESCRIBED else {}
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


def _neighbours(graph: Graph, found: Mapping[str, FoundIn]) -> list[Neighbour]:
    return [
        Neighbour(node=node, found_in=found[node.id]) for node in graph.nodes if node.id in found
    ]


def _reachable(start: str, steps: Iterable[tuple[str, str]]) -> int:
    """Return how many other nodes can be reached."""
    following: dict[str, list[str]] = {}
    for source, target in steps:
        following.setdefault(source, []).append(target)
    seen, waiting = {start}, [start]
    while waiting:
        for each in following.get(waiting.pop(), ()):
            if each not in seen:
                seen.add(each)
                waiting.append(each)
    return len(seen) - 1


def _feature(registry: Registry, name: str) -> dict[str, Any]:
    feature = registry.features[name]
    return _declared(feature.location, feature.function) | {"feature": declared_feature(feature)}


def _retriever(registry: Registry, name: str) -> dict[str, Any]:
    found = registry.retrievers[name]
    return _declared(found.location, found.function) | {"retriever": declared_retriever(found)}


def _context(registry: Registry, name: str) -> dict[str, Any]:
    context = registry.contexts[name]
    return _declared(context.location, context.function) | {"context": declared_context(context)}


def _entity(registry: Registry, name: str) -> dict[str, Any]:
    entity = registry.entities[name]
    return _declared(entity.location) | {"entity": declared_entity(entity)}


def _index(registry: Registry, name: str) -> dict[str, Any]:
    index = registry.all_indexes()[name]
    return _declared(index.location) | {"index": declared_index(index)}


_DESCRIBED: dict[DeclarationKind, Callable[[Registry, str], dict[str, Any]]] = {
    "entity": _entity,
    "feature": _feature,
    "index": _index,
    "retriever": _retriever,
    "context": _context,
}


def _declared(location: Location, function: Callable[..., Any] | None = None) -> dict[str, Any]:
    """Return where something is declared, and the source of its function, if that is known."""
    source = None if function is None else source_of(inspect.unwrap(function))
    code = source and FunctionCode(
        text=source[:LONGEST_CODE].rstrip(), is_cut=len(source) > LONGEST_CODE
    )
    return {"declared_at": str(location), "code": code or None}
