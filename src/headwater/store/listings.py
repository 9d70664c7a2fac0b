"""The declarations that a caller may see, by the scopes and limits of its key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from headwater.core.durations import format_duration
from headwater.core.json_values import plain
from headwater.core.schedules import upcoming
from headwater.core.sql_sources import mentioned
from headwater.declarations.contexts import ContextDef
from headwater.declarations.events import EventDef
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.indexes import IndexDef
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import RetrieverDef
from headwater.declarations.runtime import runtime_of
from headwater.declarations.windows import WindowDef, WindowMember
from headwater.model.callers import AccessScope, Caller, CallerLimits
from headwater.model.declarations import (
    ContextListing,
    EntityListing,
    EventListing,
    FeatureListing,
    Graph,
    IndexListing,
    ParameterListing,
    RetrieverListing,
    StoreListing,
)
from headwater.model.windows import FamilyListing, MemberListing, WindowListing
from headwater.store.feature_store import FeatureStore
from headwater.windows.plan import Window

DeclarationKind = Literal["entity", "feature", "index", "retriever", "context", "event", "source"]
VisibleNames = dict[DeclarationKind, list[str]]

# A key that publishes, assembles or reads records needs the names that it uses.
_SEEN_WITH: dict[DeclarationKind, tuple[AccessScope, ...]] = {
    "entity": ("read", "ingest", "assemble", "records"),
    "feature": ("read",),
    "index": ("read", "ingest"),
    "retriever": ("read",),
    "context": ("read", "assemble", "records"),
    "event": ("read", "ingest"),
    "source": ("read",),
}
_EVERYTHING = CallerLimits()
_MILLISECOND = timedelta(milliseconds=1)
_RUNS_SHOWN = 3
_SKETCHED = {
    "distinct": "about 4.6 % where a tile has more than 128 different values, else none",
    "percentile": "1 % of the value",
}
"""The errors of the kinds of aggregates that are computed of sketches."""

T = TypeVar("T", bound=msgspec.Struct)


def visible_names(registry: Registry, caller: Caller | None) -> VisibleNames:
    """Return the names that a caller may see, of each kind, in the order of their declaration.

    Without a caller these are all.
    """
    limits = _EVERYTHING if caller is None else caller.limits or _EVERYTHING
    indexes = () if limits.are_of_ids and limits.indexes is None else limits.indexes
    features = [f for f in registry.features.values() if _is_in(f.entity.name, limits.entities)]
    events = [event_type for feature in features for event_type in feature.triggers]
    # Limits on entities allow only types that trigger their features.
    events += registry.events if limits.entities is None else ()
    sources = [name for f in features for name in mentioned(f.sql or "", registry.sources)]
    allowed: VisibleNames = {
        "entity": [name for name in registry.entities if _is_in(name, limits.entities)],
        "feature": [feature.name for feature in features],
        "index": [name for name in sorted(registry.all_indexes()) if _is_in(name, indexes)],
        "retriever": [
            name for name, each in registry.retrievers.items() if _may_call(each, limits, indexes)
        ],
        "context": [name for name in registry.contexts if _is_in(name, limits.contexts)],
        "event": list(dict.fromkeys(events)),
        "source": list(dict.fromkeys(sources)),
    }
    return {
        kind: names if caller is None or any(map(caller.may, _SEEN_WITH[kind])) else []
        for kind, names in allowed.items()
    }


def _may_call(
    retriever: RetrieverDef, limits: CallerLimits, indexes: Collection[str] | None
) -> bool:
    """Return whether limits allow a retriever; a function may read anything."""
    if retriever.search is not None:
        return _is_in(retriever.search.index, indexes)
    return limits.entities is None and indexes is None


def _is_in(name: str, allowed: Collection[str] | None) -> bool:
    return allowed is None or name in allowed


def declarations_of(store: FeatureStore, caller: Caller | None = None) -> StoreListing:
    """Return the declarations that a caller may see, and their graph; without a caller, all."""
    registry = runtime_of(store).registry
    names = visible_names(registry, caller)
    listings: dict[str, Any] = {
        listed.field: [listing_of(store, kind, name) for name in names[kind]]
        for kind, listed in LISTED.items()
        if kind != "event"
    }
    declared = publishable(registry, caller)
    listings["events"] = [
        declared_event(declared[name]) if name in declared else EventListing(name=name)
        for name in names["event"]
    ]
    return StoreListing(**listings, graph=visible_graph(store, names))


def listing_of(store: FeatureStore, kind: DeclarationKind, name: str) -> msgspec.Struct:
    """Return the listing of a declaration; that of a scheduled feature with its next runs."""
    definition = LISTED[kind].definitions(runtime_of(store).registry)[name]
    listing = LISTED[kind].listing(definition)
    if isinstance(definition, FeatureDef) and definition.refresh is not None:
        runs = upcoming(definition.refresh, name, store.clock.now(), _RUNS_SHOWN)
        listing = msgspec.structs.replace(listing, next_runs=runs)
    return listing


def visible_graph(store: FeatureStore, names: VisibleNames) -> Graph:
    """Return the part of the graph with these names."""
    graph = store.graph()
    seen = {f"{kind}:{name}" for kind, of_kind in names.items() for name in of_kind}
    return Graph(
        tuple(node for node in graph.nodes if node.id in seen),
        tuple(edge for edge in graph.edges if edge.source in seen and edge.target in seen),
    )


def declared_entity(entity: EntityDef) -> EntityListing:
    """Return the listing of an entity."""
    owners = {field: owner.name for field, owner in entity.belongs_to}
    return _listing(EntityListing, entity, id_type=entity.id_type.__name__, belongs_to=owners)


def declared_event(event: EventDef) -> EventListing:
    """Return the listing of a type of events."""
    return EventListing(name=event.name, description=event.description, schema=event.schema)


def publishable(registry: Registry, caller: Caller | None) -> dict[str, EventDef]:
    """Return the declared types of events that a caller sees and that its limits allow."""
    limits = _EVERYTHING if caller is None else caller.limits or _EVERYTHING
    return {
        name: registry.events[name]
        for name in visible_names(registry, caller)["event"]
        if name in registry.events
        and (limits.entities is None or registry.triggered_entities(name) <= limits.entities)
    }


def declared_feature(feature: FeatureDef) -> FeatureListing:
    """Return the listing of a feature, without the times of its next runs."""
    template = feature.template
    references = template.references if template else ()
    if feature.window is not None:
        references = (feature.window.family,)
    return _listing(
        FeatureListing,
        feature,
        entity=feature.entity.name,
        type=feature.codec.expected,
        needs=list(dict.fromkeys(references)),
        refresh=feature.refresh and feature.refresh.text,
        schedule=feature.refresh and feature.refresh.words,
        next_runs=(),
        template=template and template.text,
        belongs_to=feature.belongs_to and feature.belongs_to.name,
        windows=None if feature.windows is None else declared_family(feature.windows),
        window=None if feature.window is None else declared_member(feature.window),
    )


def declared_family(windows: WindowDef) -> FamilyListing:
    """Return the listing of the windows of a family."""
    plan = windows.plan
    return FamilyListing(
        members=windows.members,
        windows=[WindowListing(**_described(window)) for window in plan.windows],
        aggregates=[aggregate.text for aggregate in plan.aggregates],
        value=windows.value,
        by=windows.by,
        max_keys=plan.max_keys or None,
        where=windows.filters,
        plan=plan.digest,
    )


def declared_member(member: WindowMember) -> MemberListing:
    """Return the listing of a feature of a family."""
    return MemberListing(
        **_described(member.window),
        family=member.family,
        aggregate=member.aggregate.text,
        error=_SKETCHED.get(member.aggregate.kind),
    )


def _described(window: Window) -> dict[str, Any]:
    shortest, longest = (
        format_duration(micros // 1_000) for micros in (window.span, window.span + window.hop)
    )
    return {
        "window": window.name,
        "span_us": window.span,
        "hop_us": window.hop,
        "covers": f"between {shortest} and {longest}",
    }


def declared_index(index: IndexDef) -> IndexListing:
    """Return the listing of an index."""
    embedder = index.embedder
    if callable(embedder):
        embedder = embedder.__qualname__ if inspect.isroutine(embedder) else type(embedder).__name__
    return _listing(IndexListing, index, embedder=embedder)


def declared_retriever(retriever: RetrieverDef) -> RetrieverListing:
    """Return the listing of a retriever."""
    search = retriever.search
    return _listing(
        RetrieverListing,
        retriever,
        parameters=_parameters(retriever),
        index=None if search is None else search.index,
        mode=None if search is None else search.options.mode,
    )


def declared_context(context: ContextDef) -> ContextListing:
    """Return the listing of a context."""
    return _listing(ContextListing, context, parameters=_parameters(context))


def _listing(kind: type[T], definition: object, **computed: Any) -> T:
    """Return a listing with the attributes of a definition, durations in milliseconds."""
    for name in kind.__struct_fields__:
        if name not in computed:
            value = getattr(definition, name.removesuffix("_ms"))
            computed[name] = value // _MILLISECOND if isinstance(value, timedelta) else value
    return kind(**computed)


def _parameters(declared: ContextDef | RetrieverDef) -> list[ParameterListing]:
    hints = annotations_of(declared.function)
    return [
        ParameterListing(
            name=parameter.name,
            type=inspect.formatannotation(hints[name]) if name in hints else None,
            required=parameter.default is parameter.empty,
            default=_json_default(parameter.default),
        )
        for name, parameter in declared.signature.parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]


def _json_default(default: Any) -> Any:
    """Return a default as JSON or, if it has no JSON form, its ``repr``."""
    if default is inspect.Parameter.empty:
        return None
    try:
        return msgspec.to_builtins(plain(default))
    except TypeError:
        return repr(default)


class Listed(NamedTuple):
    """How a kind of declarations is listed, and the field of the listing of a store."""

    field: str
    definitions: Callable[[Registry], Mapping[str, Any]]
    listing: Callable[[Any], msgspec.Struct]


LISTED: dict[DeclarationKind, Listed] = {
    "entity": Listed("entities", lambda registry: registry.entities, declared_entity),
    "event": Listed("events", lambda registry: registry.events, declared_event),
    "feature": Listed("features", lambda registry: registry.features, declared_feature),
    "index": Listed("indexes", lambda registry: registry.all_indexes(), declared_index),
    "retriever": Listed("retrievers", lambda registry: registry.retrievers, declared_retriever),
    "context": Listed("contexts", lambda registry: registry.contexts, declared_context),
}
"""The kinds of declarations that have a listing; sources have none."""
