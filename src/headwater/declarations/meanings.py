"""What a feature was at a moment, and which feature a name meant, by the catalog. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from msgspec.structs import replace

from headwater.declarations.features import FeatureDef
from headwater.declarations.series import declared_entry
from headwater.ports import CatalogEntry, CatalogState, DroppedFeature, Meaning

_NEVER = datetime.max.replace(tzinfo=UTC)

Meanings = Sequence[Meaning]
"""What one feature was over time, oldest first."""


def default_text(feature: FeatureDef) -> str | None:
    """Return the default of a feature as JSON text; None if it has none."""
    return None if feature.default is None else feature.codec.encode(feature.default).decode()


def meaning_at(meanings: Meanings, moment: datetime) -> Meaning | None:
    """Return what a feature was at a moment; before the first record of it, what that says."""
    if not meanings:
        return None
    return meanings[max(bisect_right(meanings, moment, key=_since) - 1, 0)]


def meanings_during(meanings: Meanings, start: datetime, end: datetime) -> Meanings:
    """Return what a feature was from one moment to another, both included."""
    first = max(bisect_right(meanings, start, key=_since) - 1, 0)
    return meanings[first : max(bisect_right(meanings, end, key=_since), first + 1)]


def as_meant(feature: FeatureDef, meaning: Meaning | None) -> FeatureDef:
    """Return a feature with the series and the default of a moment.

    A feature that belonged to another entity then had no values of the declared one.
    """
    if meaning is None:
        return feature
    if meaning.entity != feature.entity.name:
        return replace(feature, series=f"{feature.name}@0", default=None)
    series = meaning.series or feature.series
    if meaning.default == default_text(feature):
        return feature if series == feature.series else replace(feature, series=series)
    default = None if meaning.default is None else feature.codec.decode(meaning.default.encode())
    return replace(feature, series=series, default=default)


def named_at(
    state: CatalogState, name: str, moment: datetime
) -> CatalogEntry | DroppedFeature | None:
    """Return the feature that a name meant at a moment; None if the catalog knows none.

    A name that a feature had before means it until another feature has that name; before the first
    feature of the name was recorded, it means that one.
    """
    owners = sorted(_owners(state, name), key=lambda owner: owner.since)
    before = [each for each in owners if each.since <= moment < each.until]
    after = [each for each in owners if each.since > moment]
    owner = before[-1] if before else after[0] if after else None
    return owner and owner.feature


def declared_as(
    state: CatalogState, feature: CatalogEntry | DroppedFeature, declared: Collection[str]
) -> str | None:
    """Return the name under which a process declares a feature; None if it does not."""
    if isinstance(feature, DroppedFeature):
        return None
    names = (feature.feature, *feature.former_names)
    return next((n for n in names if n in declared and _means(state, n, feature, declared)), None)


def _means(state: CatalogState, name: str, entry: CatalogEntry, declared: Collection[str]) -> bool:
    return declared_entry(state, name, declared) is entry


class _Owner(NamedTuple):
    """A feature that had a name from a moment on, and until when the feature existed."""

    since: datetime
    until: datetime
    feature: CatalogEntry | DroppedFeature


def _owners(state: CatalogState, name: str) -> Iterator[_Owner]:
    features: list[CatalogEntry | DroppedFeature] = [*state.features.values(), *state.dropped]
    for feature in features:
        until = feature.dropped_at if isinstance(feature, DroppedFeature) else _NEVER
        for each in feature.meanings:
            if each.name == name:
                yield _Owner(each.since, until, feature)


def _since(meaning: Meaning) -> datetime:
    return meaning.since
