"""The verbs of a store for the versions of features: list, rename and drop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.engine.auditing import audited
from headwater.features.call_scope import check_not_replaying
from headwater.store.runtime import Runtime

if TYPE_CHECKING:
    from headwater.model.catalog import Dropped, VersionSummary


class CatalogVerbs:
    """``store.catalog``: the features that the store has values of, also undeclared ones."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def versions(self, name: FeatureRef) -> list[VersionSummary]:
        """Return the versions of a feature, the oldest first.

        >>> await store.catalog.versions("total_spend")
        [<VersionSummary feature='total_spend' version=1 state='active' type='float'>]
        """
        engine = await self._runtime.open()
        return await engine.feature_catalog.versions(feature_name(name))

    async def rename(self, old: FeatureRef, new: str) -> None:
        """Give a feature another name, with all its values; workers may be running.

        Processes that declare only the old name go on with it.

        >>> await store.catalog.rename("total_spend", "spend")
        """
        check_not_replaying("rename")
        engine = await self._runtime.open()
        async with audited(engine, "catalog.rename", feature_name(old), new=new):
            await engine.feature_catalog.rename(feature_name(old), new)

    async def drop(
        self, name: FeatureRef, *, version: int | None = None, dry_run: bool = False
    ) -> Dropped:
        """Remove a feature with its values and history, or one version that is not served.

        Raises FeatureInUseError if live workers run it. With ``dry_run`` nothing is removed.

        >>> (await store.catalog.drop("total_spend", dry_run=True)).online
        2
        """
        check_not_replaying("drop")
        engine, feature = await self._runtime.open(), feature_name(name)
        if dry_run:
            return await engine.feature_catalog.drop(feature, version, dry_run=True)
        async with audited(engine, "catalog.drop", feature, version=version):
            return await engine.feature_catalog.drop(feature, version)


class SyncCatalogVerbs(Blocking[CatalogVerbs]):
    """``store.sync.catalog``."""

    versions = blocking(CatalogVerbs.versions)
    rename = blocking(CatalogVerbs.rename)
    drop = blocking(CatalogVerbs.drop)
