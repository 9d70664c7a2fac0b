"""The features that the store has values of: their versions, and how to rename or drop them."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headwater.core.sql_literals import texts
from headwater.declarations.run_set import series_of
from headwater.declarations.series import declared_entry, unused_series
from headwater.errors import FeatureInUseError, InvalidInputError, UnknownNameError
from headwater.features.services import Services
from headwater.history import versions
from headwater.model.catalog import (
    CatalogEntry,
    CatalogFeature,
    CatalogState,
    Dropped,
    VersionSummary,
)


class FeatureCatalog:
    """Lists, renames and drops the features of the catalog, whether they are declared or not."""

    def __init__(self, services: Services) -> None:
        self._registry = services.registry
        self._backends = services.backends
        self._catalog = services.catalog
        self._clock = services.clock
        self._group = services.settings.worker.consumer_group

    async def features(self) -> list[CatalogFeature]:
        """Return all features by name, also features that no file declares any more."""
        declared = self._registry.features
        state = versions.enter(await self._catalog.follow(), declared.values(), self._clock.now())
        meant = [declared_entry(state, name, declared) for name in declared]
        return [
            CatalogFeature(
                name,
                entry.entity_of(entry.active),
                [version.number for version in entry.versions],
                entry in meant,
            )
            for name, entry in sorted(state.features.items())
        ]

    async def versions(self, name: str) -> list[VersionSummary]:
        """Return the versions of a feature, the oldest first."""
        self._check_own(name)
        entry = self._entry(self._entered(await self._catalog.follow(), name), name)
        counts = await self._counts(
            {version.series: entry.entity_of(version) for version in entry.versions}
        )
        return [
            VersionSummary(
                entry.feature,
                version.number,
                version.state,
                version.type,
                version.retired_at or version.activated_at or version.created_at,
                version.series,
                *counts[version.series],
            )
            for version in entry.versions
        ]

    async def rename(self, old: str, new: str) -> None:
        """Give a feature another name, with all its values."""
        registry = self._registry
        self._check_own(old, new)
        if old in registry.features and new in registry.features:
            raise InvalidInputError(
                f"a feature {new!r} exists already: {old!r} and {new!r} are both declared, so they "
                f"are two features; choose another name, or remove {old!r} from the features file "
                "first"
            )
        state = self._entered(await self._catalog.follow(), old)
        entry = self._entry(state, old)
        entity = entry.entity_of(entry.active)
        if new in registry.features and registry.features[new].entity.name != entity:
            raise InvalidInputError(
                f"{new!r} is declared for {registry.features[new].entity.name}, and {old!r} has "
                f"values of {entity}; a feature keeps its entity when it is renamed"
            )
        await self._check_unused(state, new, entity)

        def change(state: CatalogState) -> CatalogState:
            state, now = self._entered(state, old), self._clock.now()
            if new in state.features:
                state = versions.drop(state, new, now=now)
            return versions.rename(state, old, new, now)

        await self._catalog.change(change)

    def _check_own(self, *names: str) -> None:
        """Raise InvalidInputError for a feature of a family, which has no values of its own."""
        for name in names:
            feature = self._registry.features.get(name)
            if feature is not None and feature.window is not None:
                raise InvalidInputError(
                    f"feature {name!r} is made of the contributions of {feature.window.family!r}, "
                    f"which has the values, the versions and the name; use "
                    f"{feature.window.family!r}"
                )

    async def _check_unused(self, state: CatalogState, name: str, entity: str) -> None:
        """Raise InvalidInputError if a feature has values, which the renamed one would hide."""
        entry = state.features.get(name)
        series = {name: entity} if name == unused_series(state, name) else {}
        if entry is not None:
            series = {version.series: entry.entity_of(version) for version in entry.versions}
        for online, history in (await self._counts(series)).values():
            if online or history:
                raise InvalidInputError(
                    f"feature {name!r} already has values ({online} online, {history} in "
                    f"history); choose another name, or remove them first: `headwater features "
                    f"drop {name}`"
                )

    async def drop(
        self, name: str, version: int | None = None, *, dry_run: bool = False
    ) -> Dropped:
        """Remove a feature with all its values, or one version that is not served."""
        self._check_own(name)
        state = self._entered(await self._catalog.follow(), name)
        entry = self._entry(state, name)
        rest = versions.drop(state, name, version, now=self._clock.now())
        kept = {other.series for other in rest.versions()}
        gone = [candidate for candidate in entry.versions if version in (None, candidate.number)]
        series = {
            dropped.series: entry.entity_of(dropped)
            for dropped in gone
            if dropped.series not in kept
        }
        await self._check_not_running(name, series)
        counts = (await self._counts(series)).values()
        if not dry_run:
            for stored_series, entity in sorted(series.items()):
                # The values first: if this is interrupted, dropping again removes the rest.
                await self._backends.online.drop(entity, stored_series)
                await self._backends.offline.drop(stored_series)
            now = self._clock.now()
            await self._catalog.change(
                lambda state: (
                    versions.drop(state, name, version, now=now)
                    if name in state.features
                    else state
                )
            )
        online, history = (sum(count[place] for count in counts) for place in (0, 1))
        return Dropped(name, [dropped.number for dropped in gone], online, history)

    async def _check_not_running(self, name: str, series: Collection[str]) -> None:
        groups = self._backends.groups
        for group in {self._group, *(existing.name for existing in await groups.groups())}:
            workers = [
                worker
                for worker, declared in (await groups.declared(group)).items()
                if any(series_of(declaration) in series for declaration in declared)
            ]
            if workers:
                raise FeatureInUseError(name, sorted(workers))

    async def _counts(self, series: Mapping[str, str]) -> dict[str, tuple[int, int]]:
        """Return how many values of each series are online, and how many in history.

        The series are given with the entity that they belong to.
        """
        if not series:
            return {}
        sql = (
            "SELECT feature, count(*) FROM feature_history "
            f"WHERE feature IN ({texts(sorted(series))}) GROUP BY feature"
        )
        rows = (await self._backends.offline.query(sql, {})).rows
        history = {one: int(count) for one, count in rows}
        online: dict[str, int] = {}
        for entity in set(series.values()):
            own = [one for one, belongs_to in series.items() if belongs_to == entity]
            counts = await self._backends.online.count(entity, own)
            online |= dict(zip(own, counts, strict=True))
        return {one: (online[one], history.get(one, 0)) for one in series}

    def _entered(self, state: CatalogState, name: str) -> CatalogState:
        """Return the catalog with a feature that may be declared, and not run by a worker yet."""
        feature = self._registry.features.get(name)
        if feature is not None and feature.window is not None:
            family = feature.window.family
            raise InvalidInputError(
                f"{name!r} is computed from the contributions of {family!r}, which has the values, "
                f"the versions and the name; use {family!r}"
            )
        return state if feature is None else versions.enter(state, [feature], self._clock.now())

    def _entry(self, state: CatalogState, name: str) -> CatalogEntry:
        if name in state.features:
            return state.features[name]
        for entry in state.features.values():
            if name in entry.former_names:
                raise InvalidInputError(
                    f"feature {name!r} was renamed to {entry.feature!r}; use that name"
                )
        raise UnknownNameError("feature", name, state.features)
