"""The catalog of features as this process knows it."""

from __future__ import annotations

from headwater.core.logging import Outage
from headwater.declarations.registry import Registry
from headwater.errors import BackendError
from headwater.ports import Catalog, CatalogState


class FollowedCatalog:
    """Reads the catalog again when its revision has changed, and lets the registry serve it."""

    def __init__(self, catalog: Catalog, registry: Registry) -> None:
        self._catalog = catalog
        self._registry = registry
        self._outage = Outage("catalog")
        self.state = CatalogState()

    async def follow(self) -> CatalogState:
        """Return the present catalog, which all features of this process use from now on."""
        revision, known = await self._catalog.revision(), self.state.revision
        # A store that lost its catalog gets the same one back; until then nothing may be written
        # under other names.
        if revision not in (0, known) or not known:
            self.use(await self._catalog.load())
        return self.state

    async def try_to_follow(self) -> None:
        """Do the same; if the catalog cannot be read, go on with the one that is known."""
        try:
            await self.follow()
        except BackendError as error:
            self._outage.report("warning", "catalog not read; retrying", error, "read")
        else:
            self._outage.recovered("read")

    def use(self, state: CatalogState) -> None:
        """Store and read values as a catalog says that was just read or written."""
        self.state = state
        self._registry.serve(state)
