"""The dependency graph of ``{feature}`` references: check and order it; what graphs consist of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.declarations.features import FeatureDef, unknown_reference
from headwater.errors import CycleError, DeclarationError


def dependencies(feature: FeatureDef) -> tuple[str, ...]:
    """Return the features that a template refers to, each once."""
    return tuple(dict.fromkeys(feature.template.references)) if feature.template else ()


def check(features: Mapping[str, FeatureDef]) -> None:
    """Raise if a reference has no target or references form a cycle."""
    for feature in features.values():
        for name in dependencies(feature):
            if name not in features:
                raise unknown_reference(feature, name, _usable_by(feature, features))
            if features[name].entity.name != feature.entity.name:
                raise _other_entity(feature, features[name])
    done: set[str] = set()
    for name in features:
        _check_acyclic(features, name, [], done)


def _usable_by(feature: FeatureDef, features: Mapping[str, FeatureDef]) -> list[str]:
    """Return the features that a template of this one may refer to."""
    return [
        other.name
        for other in features.values()
        if other.entity.name == feature.entity.name and other.name != feature.name
    ]


def _other_entity(feature: FeatureDef, other: FeatureDef) -> DeclarationError:
    return DeclarationError(
        f"feature {feature.name!r} of entity {feature.entity.name!r} refers to {other.name!r}, "
        f"a feature of entity {other.entity.name!r}; a template reads features of one entity: "
        "combine features of several entities in a context",
        feature.location,
    )


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


def levels(
    features: Mapping[str, FeatureDef], wanted: Iterable[str]
) -> tuple[tuple[str, ...], ...]:
    """Return the features and their dependencies in levels that need only earlier levels."""
    depth: dict[str, int] = {}

    def visit(name: str) -> int:
        if name not in depth:
            depth[name] = 1 + max(map(visit, dependencies(features[name])), default=-1)
        return depth[name]

    for name in wanted:
        visit(name)
    if not depth:
        return ()
    return tuple(
        tuple(name for name, at in depth.items() if at == level)
        for level in range(max(depth.values()) + 1)
    )
