"""The series of a feature whose values are converted, according to the catalog. Pure."""

from __future__ import annotations

from collections.abc import Collection

from headwater.declarations.definitions import code_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.series import declared_entry, shape_of, unused_series
from headwater.model.catalog import CatalogState, FeatureVersion

Lineage = tuple[tuple[str, bool], ...]
"""Series, the last one first, and whether their values are converted."""


def lineage_of(
    state: CatalogState, name: str, feature: FeatureDef, declared: Collection[str]
) -> Lineage:
    """Return the series that a feature is stored in, and those of earlier types; else nothing.

    Before a worker has entered the declared type, a feature with another convert= is read as if it
    had, from a series that has no values.
    """
    entry = declared_entry(state, name, declared)
    if entry is None or entry.active is None:
        return ()
    structure, active = shape_of(feature).structure, entry.active
    fitting = {v.series: structure in (v.structure, *v.earlier_structures) for v in entry.versions}
    series = [active.series, *active.converts]
    is_served = fitting[active.series] or not is_converting(feature, active)
    if is_served and not active.converts:
        return ()
    own = series.pop(0) if is_served else unused_series(state, f"{entry.feature}.next")
    return ((own, False), *((stored, not fitting.get(stored, False)) for stored in series))


def is_converting(feature: FeatureDef, version: FeatureVersion) -> bool:
    """Return whether values of a version have another meaning than those of the declared type.

    A function that converted to the version's own type says nothing about its values.
    """
    convert = feature.codec.convert
    if convert is None:
        return bool(version.converts)
    return code_of(convert) != version.conversion
