"""Changes of the catalog: each is a function from one catalog to the next. Pure.

``FollowedCatalog.change`` applies them. Doing the same change twice has the effect of doing it
once, except where the second one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from typing import Any

from msgspec.structs import astuple, replace

from headwater.declarations.definitions import code_of, definition_of
from headwater.declarations.features import FeatureDef
from headwater.declarations.series import (
    TypeShape,
    declared_entry,
    served_series,
    shape_of,
    unused_series,
)
from headwater.errors import InvalidInputError, UnknownNameError
from headwater.model.catalog import (
    BackfillState,
    CatalogEntry,
    CatalogState,
    DroppedFeature,
    FeatureVersion,
    Horizons,
    Lifetime,
    Meaning,
    VersionRun,
)

ChangeVersion = Callable[[FeatureVersion], FeatureVersion]


def entry_of(state: CatalogState, name: str) -> CatalogEntry:
    """Return the entry of a feature; raise UnknownNameError if the catalog has none."""
    try:
        return state.features[name]
    except KeyError:
        raise UnknownNameError("feature", name, state.features) from None


def version_numbered(entry: CatalogEntry, number: int) -> FeatureVersion:
    """Return a version by its number; raise InvalidInputError if there is none."""
    for version in entry.versions:
        if version.number == number:
            return version
    numbers = ", ".join(str(existing.number) for existing in entry.versions)
    raise InvalidInputError(
        f"feature {entry.feature!r} has no version {number}; its versions: {numbers}"
    )


def version_of(state: CatalogState, series: str) -> FeatureVersion | None:
    """Return the version with a series, or None."""
    return next((version for version in state.versions() if version.series == series), None)


def unfinished(entry: CatalogEntry | None) -> FeatureVersion | None:
    """Return the version that a backfill of a feature makes and that was never served."""
    made = filter(_is_made, entry.versions if entry else ())
    return next((version for version in made if version.activated_at is None), None)


def _is_made(version: FeatureVersion) -> bool:
    return version.state in ("building", "joining", "ready")


def with_entry(state: CatalogState, entry: CatalogEntry) -> CatalogState:
    """Return the catalog with another entry of a feature."""
    return replace(state, features={**state.features, entry.feature: entry})


def change_version(state: CatalogState, series: str, change: ChangeVersion) -> CatalogState:
    """Return the catalog with a changed version, if there is one of this series.

    The feature may have been renamed since the version was read; its series stays.
    """
    for entry in state.features.values():
        for version in entry.versions:
            if version.series == series and (changed := change(version)) is not version:
                return _with_version(state, entry, changed)
    return state


def meant(entry: CatalogEntry, now: datetime, feature: FeatureDef | None = None) -> CatalogEntry:
    """Return an entry that also says what it means from now on, if that is something else.

    Its default and its ttl stay as they are, or become those of a declared feature.
    """
    last = entry.meanings[-1] if entry.meanings else None
    default, structure = (last.default, last.structure) if last else (None, "")
    if feature is not None:
        lasted = entry.lifetimes[-1] if entry.lifetimes else None
        if lasted is None or lasted.ttl != feature.ttl:
            since = max(now, lasted.since) if lasted else now
            lifetimes = [*entry.lifetimes, Lifetime(since=since, ttl=feature.ttl)]
            entry = replace(entry, lifetimes=lifetimes)
        default, structure = feature.default_text, shape_of(feature).structure
    meaning = Meaning(
        since=max(now, last.since) if last else now,
        name=entry.feature,
        entity=entry.entity_of(entry.active),
        version=entry.active.number if entry.active else None,
        series=entry.active.series if entry.active else None,
        default=default,
        structure=structure if default is not None else "",
    )
    if last is not None and meaning == replace(last, since=meaning.since):
        return entry
    return replace(entry, meanings=[*entry.meanings, meaning])


def enter(state: CatalogState, features: Iterable[FeatureDef], now: datetime) -> CatalogState:
    """Add the features that the catalog does not have, each with one version that is served.

    A former name of a feature is not a new one where the new name is not declared.
    """
    declared = {feature.name: feature for feature in features}
    for name, feature in declared.items():
        before = declared_entry(state, name, declared)
        entry = _entered(state, feature, declared, now)
        state = state if entry is before else with_entry(state, entry)
    return state


def declare(
    state: CatalogState,
    features: Iterable[FeatureDef],
    declared: Collection[str],
    now: datetime,
) -> CatalogState:
    """Enter features, and record the defaults and ttls with which they are served from now on."""
    for feature in features:
        before = declared_entry(state, feature.name, declared)
        entry = meant(_entered(state, feature, declared, now), now, feature)
        state = state if entry is before else with_entry(state, entry)
    return state


def run(state: CatalogState, features: Iterable[FeatureDef], now: datetime) -> CatalogState:
    """Enter features, and record that a worker runs them."""
    declared = {feature.name: feature for feature in features}
    state = enter(state, declared.values(), now)
    for name in declared:
        entry = declared_entry(state, name, declared)
        if entry is not None and entry.run_since is None:
            state = with_entry(state, replace(entry, run_since=now))
    return state


def ran(state: CatalogState, group: str, causes: Collection[str], now: datetime) -> CatalogState:
    """Record which versions a consumer group runs from now on, each with an event type.

    Those that it ran before and does not run any more miss the events from now on.
    """
    versions = {version.series: version for version in state.versions()}
    before = {
        cause: run
        for cause, run in state.runs.get(group, {}).items()
        if _series_of(cause) in versions
    }
    runs = {
        cause: run if cause in causes else replace(run, left_at=run.left_at or now)
        for cause, run in before.items()
    }
    for cause in causes:
        run, version = before.get(cause), versions.get(_series_of(cause))
        if run is not None and run.left_at is not None:
            missed = min(run.missed_since or run.left_at, run.left_at)
            runs[cause] = VersionRun(since=now, missed_since=missed)
        elif run is None and version is not None:
            backfill = version.backfill
            # A backfill of all events gives a version those from before workers run it.
            is_complete = backfill and backfill.since is None and backfill.main_group == group
            missed_since = None if is_complete else state.worked_since
            runs[cause] = VersionRun(since=now, missed_since=missed_since)
    if runs == state.runs.get(group) and state.worked_since is not None:
        return state
    since = state.worked_since or now
    return replace(state, runs={**state.runs, group: runs}, worked_since=since)


def _series_of(cause: str) -> str:
    return cause.rpartition(" on ")[0]


def missed_nothing(state: CatalogState, group: str, cause: str, run: VersionRun) -> CatalogState:
    """Record that there were no events which a version could have missed."""
    runs = state.runs.get(group, {})
    if runs.get(cause) != run:
        return state
    complete = {**runs, cause: replace(run, missed_since=None)}
    return replace(state, runs={**state.runs, group: complete})


def _entered(
    state: CatalogState, feature: FeatureDef, declared: Collection[str], now: datetime
) -> CatalogEntry:
    """Return the entry of a feature, which is new if the catalog has none.

    A feature whose values are not stored has no version; it may have values later.
    """
    entry = declared_entry(state, feature.name, declared) or CatalogEntry(
        feature=feature.name, entity=feature.entity.name, versions=[]
    )
    if feature.is_stored and not entry.versions:
        series = served_series(state, feature.name, declared)
        first = _new_version(feature, 1, series, now, state="active", activated_at=now)
        entry = replace(entry, versions=[first])
    elif entry.meanings:
        return entry
    return meant(entry, now, feature)


def _new_version(
    feature: FeatureDef, number: int, series: str, now: datetime, **fields: Any
) -> FeatureVersion:
    """Return a version whose values have the type that a feature declares now."""
    shape = shape_of(feature)
    return FeatureVersion(
        number=number,
        series=series,
        type=shape.type,
        structure=shape.structure,
        conversion=code_of(feature.codec.convert),
        created_at=now,
        **fields,
    )


def _next_version(
    catalog: CatalogState, entry: CatalogEntry, feature: FeatureDef, now: datetime, **fields: Any
) -> FeatureVersion:
    """Return a version with a number that none has or had, also not one that was dropped."""
    numbers = [version.number for version in entry.versions]
    numbers += [meaning.version for meaning in entry.meanings if meaning.version is not None]
    number = max(numbers, default=0) + 1
    series = unused_series(catalog, f"{entry.feature}@{number}")
    return _new_version(feature, number, series, now, **fields)


def add_version(
    state: CatalogState,
    feature: FeatureDef,
    declared: Collection[str],
    now: datetime,
    backfill: BackfillState,
) -> CatalogState:
    """Add a version that a backfill makes, with values of its own; one at a time."""
    entry = _entered(state, feature, declared, now)
    made = unfinished(entry)
    if made is not None:
        raise InvalidInputError(
            f"feature {feature.name!r} already has version {made.number}, which is {made.state}; "
            f"`headwater backfill switch {feature.name}` serves it when it is ready, and "
            f"`headwater backfill cancel {feature.name}` removes it"
        )
    version = _next_version(
        *(state, entry, feature, now),
        state="building",
        definition=definition_of(feature),
        entity=feature.entity.name,
        backfill=backfill,
    )
    return with_entry(state, replace(entry, versions=[*entry.versions, version]))


def is_made(entry: CatalogEntry, feature: FeatureDef) -> bool:
    """Return whether a backfill makes a version of the declared type and entity."""
    shape = (shape_of(feature).structure, feature.entity.name)
    made = filter(_is_made, entry.versions)
    return any((existing.structure, entry.entity_of(existing)) == shape for existing in made)


def move(state: CatalogState, name: str, entity: str, now: datetime) -> CatalogState:
    """Let a feature that has no values belong to another entity."""
    entry = entry_of(state, name)
    versions = [replace(version, entity=entity) for version in entry.versions]
    return with_entry(state, meant(replace(entry, entity=entity, versions=versions), now))


def change_type(state: CatalogState, name: str, shape: TypeShape) -> CatalogState:
    """Record that the values of the served version also fit the type declared now."""
    entry = entry_of(state, name)
    version = entry.active
    if version is None or version.structure == shape.structure:
        return state
    earlier = {*version.earlier_structures, version.structure} - {shape.structure}
    changed = replace(
        version, type=shape.type, structure=shape.structure, earlier_structures=sorted(earlier)
    )
    return _with_version(state, entry, changed)


def convert(state: CatalogState, name: str, feature: FeatureDef, now: datetime) -> CatalogState:
    """Serve a version of another type; values of earlier ones are converted when they are read."""
    entry = entry_of(state, name)
    version = entry.active
    if version is None or version.structure == shape_of(feature).structure:
        return state
    converted = _next_version(
        *(state, entry, feature, now),
        state="active",
        definition=definition_of(feature) if feature.triggers else "",
        entity=entry.entity_of(version),
        converts=[version.series, *version.converts],
        activated_at=now,
    )
    before = [
        replace(earlier, state="retired", retired_at=now) if earlier.state == "active" else earlier
        for earlier in entry.versions
    ]
    served = replace(entry, versions=[*before, converted])
    # A default of the earlier type is none of this version.
    return with_entry(state, meant(served, now, feature))


def rename(state: CatalogState, old: str, new: str, now: datetime) -> CatalogState:
    """Give a feature another name; the old one means the same where the new is not declared."""
    entry = entry_of(state, old)
    if not new.isidentifier():
        raise InvalidInputError(f"{new!r} cannot be the name of a feature: it is not an identifier")
    if new in state.features:
        raise InvalidInputError(
            f"the catalog already has a feature {new!r}; choose another name, or remove that "
            f"feature with all its values: `headwater features drop {new}`"
        )
    former = [*(name for name in entry.former_names if name != new), old]
    rest = {name: other for name, other in state.features.items() if name != old}
    renamed = meant(replace(entry, feature=new, former_names=former), now)
    return with_entry(replace(state, features=rest), renamed)


def drop(
    state: CatalogState, name: str, number: int | None = None, *, now: datetime
) -> CatalogState:
    """Remove a feature, or one version that is not served; the caller removes the values.

    What the feature was over time stays, so that another one of the name never answers for it.
    """
    entry = entry_of(state, name)
    if number is None:
        rest = {other: entry for other, entry in state.features.items() if other != name}
        dropped = DroppedFeature(meanings=entry.meanings, dropped_at=now)
        gone = {version.series for version in entry.versions}
        runs = {
            group: {cause: run for cause, run in some.items() if _series_of(cause) not in gone}
            for group, some in state.runs.items()
        }
        return replace(state, features=rest, dropped=[*state.dropped, dropped], runs=runs)
    version = version_numbered(entry, number)
    if any(version.series in later.converts for later in entry.versions):
        raise InvalidInputError(
            f"version {number} of feature {name!r} cannot be dropped alone: a later version "
            "converts its values; run `headwater backfill` to compute them again first, or drop "
            f"the feature with all versions: `headwater features drop {name}`"
        )
    if version.state == "active":
        raise InvalidInputError(
            f"version {number} of feature {name!r} is served and cannot be dropped alone; "
            f"`headwater features drop {name}` drops the feature with all versions"
        )
    return with_entry(
        state, replace(entry, versions=[other for other in entry.versions if other != version])
    )


def prune(state: CatalogState, upto: Horizons) -> CatalogState:
    """Record the moments before which rows were removed; they never go back."""
    pairs = zip(astuple(upto), astuple(state.pruned), strict=True)
    moments = (max(filter(None, pair), default=None) for pair in pairs)
    return replace(state, pruned=Horizons(*moments))


def _with_version(
    state: CatalogState, entry: CatalogEntry, version: FeatureVersion
) -> CatalogState:
    versions = [
        version if existing.number == version.number else existing for existing in entry.versions
    ]
    return with_entry(state, replace(entry, versions=versions))
