"""Which series the values of a feature are stored under, according to the catalog. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from headwater.core.codec import Codec, structure_of
from headwater.declarations.features import FeatureDef
from headwater.model.catalog import CatalogEntry, CatalogState, FeatureVersion

_CONTRIBUTION = "contribution"
_QUALIFIER = re.compile(r"(?:[\w<>]+\.)+")


class TypeShape(NamedTuple):
    """The type of a feature's values: its name, and a hash of its structure."""

    type: str
    structure: str


def shape_of(feature: FeatureDef) -> TypeShape:
    """Return the type that a feature declares; a contribution is none of its plain values."""
    shape = _shape_of(feature.codec)
    if feature.windows is None:
        return shape
    return TypeShape(f"contribution of {shape.type}", f"{_CONTRIBUTION} {shape.structure}")


def is_other_kind(entry: CatalogEntry | None, feature: FeatureDef) -> bool:
    """Return whether its series has values where it needs contributions, or the other way round."""
    if entry is None or entry.active is None:
        return False
    return has_contributions(entry.active) != (feature.windows is not None)


def has_contributions(version: FeatureVersion) -> bool:
    """Return whether a version is one of a family of windows."""
    return version.structure.startswith(f"{_CONTRIBUTION} ")


@lru_cache(1_024)  # a worker that starts compares all types, and tests start one for each drain
def _shape_of(codec: Codec) -> TypeShape:
    structure = structure_of(codec.annotation)
    return TypeShape(
        _QUALIFIER.sub("", codec.expected), sha256(structure.encode()).hexdigest()[:16]
    )


def declared_entry(
    state: CatalogState, name: str, declared: Collection[str]
) -> CatalogEntry | None:
    """Return the entry of a feature, or None if the catalog has none.

    A former name means the renamed feature in a process that does not declare the new name.
    """
    renamed = (
        entry
        for entry in state.features.values()
        if name in entry.former_names and entry.feature not in declared
    )
    return state.features.get(name) or next(renamed, None)


def served_series(state: CatalogState, name: str, declared: Collection[str]) -> str:
    """Return the series of the version that is served."""
    entry = declared_entry(state, name, declared)
    if entry is not None and entry.active is not None:
        return entry.active.series
    return unused_series(state, name)


def foreign_series(entry: CatalogEntry | None, feature: FeatureDef) -> tuple[str, str] | None:
    """Return the series that is served and the entity it belongs to, if that is not the declared.

    A process that reads or writes it under the declared one would mix two entities.
    """
    if entry is None or entry.active is None:
        return None
    stored = entry.entity_of(entry.active)
    return None if stored == feature.entity.name else (entry.active.series, stored)


def undeclared_entities(state: CatalogState, declared: Collection[str]) -> dict[str, list[str]]:
    """Return the entities that the catalog has and a process does not declare, and their features.

    >>> undeclared_entities(state, registry.entities)
    {'User': ['total_spend']}
    """
    features_of: dict[str, set[str]] = {}
    for entry in state.features.values():
        for version in entry.versions:
            if (entity := entry.entity_of(version)) not in declared:
                features_of.setdefault(entity, set()).add(entry.feature)
    return {entity: sorted(features) for entity, features in sorted(features_of.items())}


def unused_series(state: CatalogState, name: str) -> str:
    """Return the name, or the name with the first number that no version has as its series."""
    used = {version.series for version in state.versions()}
    number, series = 1, name
    while series in used:
        number += 1
        series = f"{name}@{number}"
    return series


def fresh_series(
    entry: CatalogEntry | None, feature: FeatureDef, group: str | None = None
) -> Iterator[str]:
    """Yield the series that are kept fresh next to the one that is served, by a consumer group.

    Until a version is served, only the group that its backfill was started for runs it. Those of
    another entity than the declared one are left out.
    """
    if entry is None:
        return
    for version in entry.versions:
        if entry.entity_of(version) != feature.entity.name:
            continue
        is_new = version.backfill is not None and version.activated_at is None
        main_group = version.backfill.main_group if version.backfill and is_new else group
        if version.state in ("joining", "ready") and group in (None, main_group):
            yield version.series


def unfit_series(entry: CatalogEntry | None, feature: FeatureDef) -> set[str]:
    """Return the series with values of another type or entity than declared, of several versions.

    A single version is not looked at: a worker checks it when it starts. A type that a version
    had before still fits: workers of the older file run on, and no event may be lost.
    """
    if entry is None or len(entry.versions) == 1:
        return {series for series, _ in feature.lineage if entry and series == feature.series}
    structure, entity = shape_of(feature).structure, feature.entity.name
    fitting = {
        version.series
        for version in entry.versions
        if version.has_structure(structure) and entry.entity_of(version) == entity
    }
    return {feature.series, *(version.series for version in entry.versions)} - fitting
