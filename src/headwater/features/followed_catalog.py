"""The catalog of features as this process knows it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from itertools import islice
from typing import Protocol

import msgspec

from headwater.core.clock import Clock
from headwater.core.logging import Outage
from headwater.declarations.features import FeatureDef
from headwater.declarations.registry import Registry
from headwater.declarations.series import declared_entry
from headwater.model.catalog import CatalogState
from headwater.ports import Catalog


class Declare(Protocol):
    """The change of a catalog by which a process records the features that it serves."""

    def __call__(
        self,
        state: CatalogState,
        features: Iterable[FeatureDef],
        declared: Collection[str],
        now: datetime,
        /,
    ) -> CatalogState: ...


class FollowedCatalog:
    """Reads the catalog again when its revision has changed, and lets the registry serve it."""

    def __init__(
        self, catalog: Catalog, registry: Registry, clock: Clock, declare: Declare
    ) -> None:
        self._catalog = catalog
        self._registry = registry
        self._clock = clock
        self._declare = declare
        self._declared = 0
        self._outage = Outage("catalog")
        self._is_read = False
        self.state = CatalogState()
        self.served_at_first: frozenset[str] = frozenset()
        """The series that were served when this process began: its code was made after them."""

    async def follow(self) -> CatalogState:
        """Return the present catalog, which all features of this process use from now on."""
        # A store that lost its catalog (0) gets the same one back; until then nothing may be
        # written under other names.
        if not self._is_read or await self._catalog.revision() not in (0, self.state.revision):
            self.use(await self._catalog.load())
        return self.state

    async def try_to_follow(self) -> None:
        """Do the same, and record the served versions; if it fails, go on with the known ones."""
        with self._outage.reporting("warning", "catalog not read; retrying", "read"):
            await self.follow()
            await self.declare()

    @property
    def is_declared(self) -> bool:
        """Whether the catalog has what this process serves; cheap, because every assembly asks."""
        return self._declared == len(self._registry.features)

    async def declare(self) -> None:
        """Record the features and defaults that this process serves, if the catalog has others.

        Each is recorded once: processes with other defaults, which run at the same time, do not
        correct each other.
        """
        if self.is_declared:
            return
        features, count = self._registry.features, len(self._registry.features)
        new = [
            feature
            for feature in islice(features.values(), self._declared, None)
            if feature.is_named
        ]

        def record(state: CatalogState) -> CatalogState:
            return self._declare(state, new, features, self._clock.now())

        if record(self.state) is not self.state:
            await self.change(record)
        self._declared = count

    async def change(self, transition: Callable[[CatalogState], CatalogState]) -> CatalogState:
        """Apply a change of the catalog, again if another process was faster; return the result.

        >>> await catalog.change(lambda state: versions.rename(state, "total", "spend", now))
        """
        while True:
            before = await self._catalog.load()
            after = transition(before)
            if after == before:
                self.use(before)
                return before
            after = msgspec.structs.replace(after, revision=before.revision + 1)
            if await self._catalog.replace(after):
                self.use(after)
                return after

    def series_of(self, name: str) -> str:
        """Return the series of the version of a feature that is served; else the name itself."""
        entry = declared_entry(self.state, name, self._registry.features)
        return name if entry is None or entry.active is None else entry.active.series

    def name_of(self, series: str) -> str:
        """Return the feature that is served from a series; else the series itself."""
        for entry in self.state.features.values():
            if entry.active is not None and entry.active.series == series:
                return entry.feature
        return series

    def use(self, state: CatalogState) -> None:
        """Store and read values as a catalog says that was just read or written."""
        if not self._is_read:
            active = (entry.active for entry in state.features.values())
            self.served_at_first = frozenset(
                version.series for version in active if version is not None
            )
        self.state, self._is_read = state, True
        self._registry.serve(state)
