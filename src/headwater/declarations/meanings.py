"""What a feature and a name meant at a moment, and what is converted, by the catalog. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from msgspec.structs import replace

from headwater.core.clock import to_micros
from headwater.declarations.definitions import code_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.series import (
    declared_entry,
    has_contributions,
    shape_of,
    unused_series,
)
from headwater.errors import InvalidInputError
from headwater.model.catalog import (
    CatalogEntry,
    CatalogState,
    DroppedFeature,
    FeatureVersion,
    Meaning,
)

_NEVER = datetime.max.replace(tzinfo=UTC)

Meanings = Sequence[Meaning]
"""What one feature was over time, oldest first."""


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
        return replace(feature, series=f"{feature.name}.none", default=None)
    series = meaning.series or feature.series
    is_converted = _is_converted(feature, series, meaning)
    if meaning.default == feature.default_text and not is_converted:
        return feature if series == feature.series else replace(feature, series=series)
    default = None
    if meaning.default is not None:
        text = meaning.default.encode()
        default = feature.codec.decode(feature.codec.converted(text) if is_converted else text)
    return replace(feature, series=series, default=default)


def _is_converted(feature: FeatureDef, series: str, meaning: Meaning) -> bool:
    """Return whether a default is of an earlier type, so that it is converted as values are.

    A process declares its default before a worker converts the series.
    """
    if feature.codec.convert is None or meaning.default is None:
        return False
    if meaning.structure:
        return meaning.structure != shape_of(feature).structure
    return dict(feature.lineage).get(series, False)


def earlier_ttls(
    entry: CatalogEntry | None, feature: FeatureDef
) -> tuple[tuple[int, timedelta | None], ...]:
    """Return moments, oldest first, and the ttl of values that were written before each of them.

    Later ones have the declared ttl.
    """
    lifetimes = entry.lifetimes if entry else ()
    ends = [*(to_micros(lifetime.since) for lifetime in lifetimes[1:]), to_micros(_NEVER)]
    ttls = [(end, lifetime.ttl) for end, lifetime in zip(ends, lifetimes, strict=False)]
    return tuple(ttls[:-1] if ttls and ttls[-1][1] == feature.ttl else ttls)


class FeatureSince(NamedTuple):
    """A feature with the series and the default that it had from a moment on."""

    since: datetime
    feature: FeatureDef


class PastNames:
    """What the declared features were over time, as a catalog says.

    ``kept`` has the versions whose values can be read, if these are not those of the catalog.
    """

    def __init__(
        self, state: CatalogState, declared: Collection[str], kept: CatalogState | None = None
    ) -> None:
        self._state = state
        self._declared = declared
        self._kept = {version.series for version in (kept or state).versions()}

    def spans(self, feature: FeatureDef, start: datetime, end: datetime) -> list[FeatureSince]:
        """Return what a feature was from one moment to another, both included.

        Raise InvalidInputError if a version that was served then has been dropped.
        """
        own = self._spans(feature, feature.name, start, end)
        if feature.window is None:
            return own
        # It has the series of its family, and a default of its own.
        family = self._spans(replace(feature, default=None), feature.window.family, start, end)
        moments = sorted({max(span.since, start) for span in (*own, *family)})
        return [
            FeatureSince(moment, replace(_at(own, moment), series=_at(family, moment).series))
            for moment in moments
        ]

    def _spans(
        self, feature: FeatureDef, name: str, start: datetime, end: datetime
    ) -> list[FeatureSince]:
        """Return what a feature was by the entry of a name, its own or that of its family."""
        entry = declared_entry(self._state, name, self._declared)
        if entry is None or not entry.meanings:
            return [FeatureSince(start, feature)]
        first, *later = meanings_during(entry.meanings, start, end)
        # Of those since one moment only the last was ever served.
        meanings = [first, *{meaning.since: meaning for meaning in later}.values()]
        for meaning in meanings:
            self._check_kept(feature, meaning)
        changes = [
            later
            for before, later in pairwise(meanings)
            if replace(before, since=later.since, name=later.name) != later
        ]
        return [
            FeatureSince(meaning.since, _of_its_kind(entry, feature, meaning))
            for meaning in (first, *changes)
        ]

    def at(self, feature: FeatureDef, moment: datetime) -> FeatureDef:
        """Return a feature with the series and the default of a moment; raise as ``spans`` does."""
        return self.spans(feature, moment, moment)[0].feature

    def _check_kept(self, feature: FeatureDef, meaning: Meaning) -> None:
        is_gone = meaning.series is not None and meaning.series not in self._kept
        if is_gone and meaning.entity == feature.entity.name:
            raise InvalidInputError(
                f"version {meaning.version} of feature {feature.name!r}, which was served from "
                f"{meaning.since.isoformat()} on, was dropped with its values; leave out the rows "
                "of that time, or read from an export that still has it, with exported="
            )


def _of_its_kind(entry: CatalogEntry, feature: FeatureDef, meaning: Meaning) -> FeatureDef:
    """Return a feature as it was meant; it had no values while its name was no family, or one."""
    is_of_windows = feature.windows is not None or feature.window is not None
    served = (version for version in entry.versions if version.series == meaning.series)
    if any(has_contributions(version) != is_of_windows for version in served):
        return replace(feature, series=f"{feature.name}.none", default=None)
    return as_meant(feature, meaning)


def _at(spans: Sequence[FeatureSince], moment: datetime) -> FeatureDef:
    before = [span for span in spans if span.since <= moment]
    return (before or spans)[-1 if before else 0].feature


def named_at(
    state: CatalogState, name: str, moment: datetime
) -> CatalogEntry | DroppedFeature | None:
    """Return the feature that a name meant at a moment; None if the catalog knows none.

    A name that a feature had before means it until another feature has that name; before the first
    feature of the name was recorded, it means that one.
    """
    owners = sorted(_owners(state, name), key=lambda owner: owner.since)
    before = [candidate for candidate in owners if candidate.since <= moment < candidate.until]
    after = [candidate for candidate in owners if candidate.since > moment]
    owner = before[-1] if before else after[0] if after else None
    return owner and owner.feature


def declared_as(
    state: CatalogState, feature: CatalogEntry | DroppedFeature, declared: Collection[str]
) -> str | None:
    """Return the name under which a process declares a feature; None if it does not."""
    if isinstance(feature, DroppedFeature):
        return None
    names = (feature.feature, *feature.former_names)
    entries = ((name, declared_entry(state, name, declared)) for name in names if name in declared)
    return next((name for name, entry in entries if entry is feature), None)


class _Owner(NamedTuple):
    """A feature that had a name from a moment on, and until when the feature existed."""

    since: datetime
    until: datetime
    feature: CatalogEntry | DroppedFeature


def _owners(state: CatalogState, name: str) -> Iterator[_Owner]:
    features: list[CatalogEntry | DroppedFeature] = [*state.features.values(), *state.dropped]
    for feature in features:
        until = feature.dropped_at if isinstance(feature, DroppedFeature) else _NEVER
        for meaning in feature.meanings:
            if meaning.name == name:
                yield _Owner(meaning.since, until, feature)


def _since(meaning: Meaning) -> datetime:
    return meaning.since


Lineage = tuple[tuple[str, bool], ...]
"""Series, the last one first, and whether their values are converted."""


def lineage_of(state: CatalogState, entry: CatalogEntry | None, feature: FeatureDef) -> Lineage:
    """Return the series that a feature is stored in, and those of earlier types; else nothing.

    Before a worker has entered the declared type, a feature with another convert= is read as if it
    had, from a series that has no values.
    """
    if entry is None or entry.active is None:
        return ()
    structure, active = shape_of(feature).structure, entry.active
    fitting = {version.series: version.has_structure(structure) for version in entry.versions}
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
