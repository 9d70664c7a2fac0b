"""Listings of the declarations: entities, features, indexes, retrievers and contexts."""

from __future__ import annotations

import inspect
from datetime import timedelta
from typing import Any, TypeVar

import msgspec

from headwater.core.json_values import plain
from headwater.declarations.contexts import ContextDef
from headwater.declarations.features import EntityDef, FeatureDef
from headwater.declarations.function_checks import annotations_of
from headwater.declarations.indexes import IndexDef
from headwater.declarations.retrievers import RetrieverDef
from headwater.declarations.runtime import runtime_of
from headwater.model.callers import Caller
from headwater.model.declarations import (
    ContextListing,
    EntityListing,
    FeatureListing,
    Graph,
    IndexListing,
    ParameterListing,
    RetrieverListing,
    StoreListing,
)
from headwater.store.feature_store import FeatureStore
from headwater.store.visible_names import VisibleNames, visible_names

_MILLISECOND = timedelta(milliseconds=1)

T = TypeVar("T", bound=msgspec.Struct)


def declarations_of(store: FeatureStore, caller: Caller | None = None) -> StoreListing:
    """Return the declarations that a caller may see, and their graph; without a caller, all."""
    registry = runtime_of(store).registry
    names, indexes = visible_names(registry, caller), registry.all_indexes()
    return StoreListing(
        entities=[declared_entity(registry.entities[name]) for name in names["entity"]],
        features=[declared_feature(registry.features[name]) for name in names["feature"]],
        indexes=[declared_index(indexes[name]) for name in names["index"]],
        retrievers=[declared_retriever(registry.retrievers[name]) for name in names["retriever"]],
        contexts=[declared_context(registry.contexts[name]) for name in names["context"]],
        graph=visible_graph(store, names),
    )


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
    return _listing(EntityListing, entity, id_type=entity.id_type.__name__)


def declared_feature(feature: FeatureDef) -> FeatureListing:
    """Return the listing of a feature."""
    template = feature.template
    references = template.references if template else ()
    return _listing(
        FeatureListing,
        feature,
        entity=feature.entity.name,
        type=feature.codec.expected,
        needs=list(dict.fromkeys(references)),
        template=template and template.render({name: f"{{{name}}}" for name in references}),
    )


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
