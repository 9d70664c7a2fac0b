"""The dependency graph of ``{feature}`` references: check and order it; what graphs consist of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from headwater.core.sql_sources import mentioned
from headwater.declarations.code_uses import uses_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.declarations.retrievers import RetrieverDef
from headwater.errors import (
    CycleError,
    DeclarationError,
    FormatError,
    TemplateError,
    UnknownReferenceError,
)
from headwater.model.declarations import Edge, Graph, Node

SAMPLES: Mapping[str, Any] = {
    "int": 0,
    "float": 0.0,
    "bool": False,
    "text": "",
    "time": datetime(2000, 1, 1, tzinfo=UTC),
}
"""A value of each kind of feature, to try formats with; other kinds are only known when read."""


def dependencies(feature: FeatureDef) -> tuple[str, ...]:
    """Return the features that a template refers to, each once."""
    return tuple(dict.fromkeys(feature.template.references)) if feature.template else ()


def check(features: Mapping[str, FeatureDef]) -> None:
    """Raise if a reference has no target, a format does not fit it, or references form a cycle."""
    for feature in features.values():
        entity = feature.entity.name
        for name in dependencies(feature):
            other = features.get(name)
            if other is None:
                usable = [
                    f.name
                    for f in features.values()
                    if f.entity.name == entity and f.windows is None
                ]
                usable.remove(feature.name)
                owner = f"feature {feature.name!r}"
                raise UnknownReferenceError(owner, "feature", name, usable, feature.location)
            if other.windows is not None:
                raise DeclarationError(
                    f"feature {feature.name!r} refers to {name!r}, which is a family of windows; "
                    f"refer to one of {', '.join(other.windows.members)}",
                    feature.location,
                )
            if other.entity.name != entity:
                raise DeclarationError(
                    f"feature {feature.name!r} of entity {entity!r} refers to {name!r}, a feature "
                    f"of entity {other.entity.name!r}; a template reads features of one entity: "
                    "combine features of several entities in a context",
                    feature.location,
                )
        _check_formats(feature, features)
    done: set[str] = set()
    for name in features:
        _check_acyclic(features, name, [], done)


def _check_formats(feature: FeatureDef, features: Mapping[str, FeatureDef]) -> None:
    if feature.template is not None:
        kinds = {name: features[name].codec.kind for name in feature.template.references}
        try:
            feature.template.render({name: SAMPLES.get(kind) for name, kind in kinds.items()})
        except FormatError as error:
            raise TemplateError(f"feature {feature.name!r}: {error}", feature.location) from error


def _check_acyclic(
    features: Mapping[str, FeatureDef], name: str, path: list[str], done: set[str]
) -> None:
    if name in path:
        cycle = [*path[path.index(name) :], name]
        raise CycleError(cycle, features[cycle[0]].location)
    if name in done:
        return
    for needed in dependencies(features[name]):
        _check_acyclic(features, needed, [*path, name], done)
    done.add(name)


def levels(features: Mapping[str, FeatureDef], names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return the features and their dependencies in levels that need only earlier levels."""
    depth: dict[str, int] = {}

    def visit(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max(map(visit, dependencies(features[name])), default=-1)
        return depth[name]

    for name in names:
        visit(name)
    if not depth:
        return ()
    return tuple(
        tuple(name for name, at in depth.items() if at == level)
        for level in range(max(depth.values()) + 1)
    )


def draw(registry: Registry) -> Graph:
    """Return the graph of all declarations, of event types and of sources.

    The dependencies of templates, triggers, SQL and searches are declared. Those of functions are
    found in their code.
    """
    nodes = {node.id: node for node in _nodes(registry)}
    edges: dict[tuple[str, str], Edge] = {}
    for edge in _edges(registry):
        if edge.source != edge.target and edge.source in nodes and edge.target in nodes:
            edges.setdefault((edge.source, edge.target), edge)
    return Graph(tuple(nodes.values()), tuple(edges.values()))


def _nodes(registry: Registry) -> Iterator[Node]:
    for entity in registry.entities.values():
        if entity.belongs_to:
            owners = (owner.name for _, owner in entity.belongs_to)
            yield from (Node(f"entity:{name}", name, "entity") for name in (entity.name, *owners))
    for feature in registry.features.values():
        yield Node(
            f"feature:{feature.name}",
            feature.name,
            feature.mode,
            feature.entity.name,
            feature.description,
            feature.owner,
            feature.tags,
            feature.unit,
        )
        yield from (Node(f"event:{trigger}", trigger, "event") for trigger in feature.triggers)
        yield from (
            Node(f"source:{source}", source, "source") for source in _sources(feature, registry)
        )
    yield from (Node(f"event:{name}", name, "event") for name in registry.events)
    for name in registry.all_indexes():
        yield Node(f"index:{name}", name, "index")
    for name, retriever in registry.retrievers.items():
        described = retriever.description
        yield Node(f"retriever:{name}", name, "retriever", description=described)
    for name, context in registry.contexts.items():
        yield Node(f"context:{name}", name, "context", description=context.description)


def _edges(registry: Registry) -> Iterator[Edge]:
    for feature in registry.features.values():
        node = f"feature:{feature.name}"
        yield from (Edge(f"event:{trigger}", node) for trigger in feature.triggers)
        yield from (Edge(f"source:{source}", node) for source in _sources(feature, registry))
        yield from (Edge(f"feature:{dependency}", node) for dependency in dependencies(feature))
        if feature.belongs_to is not None:
            belonging = f"entity:{feature.entity.name}"
            yield Edge(node, belonging)
            yield Edge(belonging, f"entity:{feature.belongs_to.name}")
        if feature.window is not None:
            yield Edge(f"feature:{feature.window.family}", node)
        elif feature.template is None and feature.sql is None:
            yield from _found_in_code(node, feature.function)
    for retriever in registry.retrievers.values():
        yield from _edges_of_retriever(retriever)
    for context in registry.contexts.values():
        yield from _found_in_code(f"context:{context.name}", context.function)


def _edges_of_retriever(retriever: RetrieverDef) -> Iterator[Edge]:
    node, search = f"retriever:{retriever.name}", retriever.search
    if search is None:
        yield from _found_in_code(node, retriever.function)
        return
    yield Edge(f"index:{search.index}", node)
    for name in search.references:
        if name not in retriever.signature.parameters:
            yield Edge(f"feature:{name}", node)


def _found_in_code(node: str, function: Callable[..., Any]) -> Iterator[Edge]:
    for kind, name, is_written in uses_of(function):
        other = f"{kind}:{name}"
        yield Edge(node, other, "code") if is_written else Edge(other, node, "code")


def _sources(feature: FeatureDef, registry: Registry) -> Iterator[str]:
    yield from mentioned(feature.sql or "", registry.sources)
