"""The catalog: the versions of features, to list, rename and drop."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from headwater.core.blocking import Blocking, blocking
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.errors import FeatureInUseError, UnknownNameError
from headwater.model.admin import DryRun
from headwater.model.catalog import (
    CatalogFeature,
    CatalogFeatures,
    Dropped,
    VersionList,
    VersionNumber,
    VersionSummary,
)
from headwater.model.kinds import FeatureName
from headwater.store.verbs.verb import Sent, Verbs, verb

NamedFeature = Annotated[FeatureRef, Sent(FeatureName, feature_name)]
RenamedFeature = Annotated[FeatureRef, Sent(FeatureName, feature_name, name="name")]
NewName = Annotated[str, Meta(description="The new name.", examples=["spend"])]


class CatalogVerbs(Verbs):
    """``store.catalog``: the features that the store has values of, also undeclared ones."""

    @verb(
        "GET",
        "/v1/catalog",
        scope="read",
        operation="list_catalog",
        reads="the catalog",
        answer=CatalogFeatures,
    )
    async def features(self) -> list[CatalogFeature]:
        """Return all features that the store keeps, also those that no file declares any more.

        >>> await store.catalog.features()
        [<CatalogFeature feature='last_item' entity='User' versions=[1] is_declared=True>, ...]
        """
        return await (await self._engine()).feature_catalog.features()

    @verb(
        "GET",
        "/v1/features/{name}/versions",
        scope="read",
        operation="list_versions",
        answer=VersionList,
        raises=(UnknownNameError,),
    )
    async def versions(self, name: NamedFeature) -> list[VersionSummary]:
        """Return the versions of a feature, oldest first, with the number of their values.

        >>> await store.catalog.versions("total_spend")
        [<VersionSummary feature='total_spend' version=1 state='active' type='float'>]
        """
        return await (await self._engine()).feature_catalog.versions(feature_name(name))

    @verb(
        "POST",
        "/v1/features/{name}/rename",
        scope="admin",
        operation="rename",
        changes="catalog.rename",
        target="name",
        notes=("new",),
        raises=(UnknownNameError,),
    )
    async def rename(self, old: RenamedFeature, new: NewName) -> None:
        """Give a feature another name, with all its values; workers may be running.

        Processes that declare only the old name go on with it.

        >>> await store.catalog.rename("total_spend", "spend")
        """
        await (await self._engine()).feature_catalog.rename(feature_name(old), new)

    @verb(
        "DELETE",
        "/v1/features/{name}",
        scope="admin",
        operation="drop_feature",
        changes="catalog.drop",
        target="name",
        notes=("version",),
        raises=(UnknownNameError, FeatureInUseError),
    )
    async def drop(
        self, name: NamedFeature, *, version: VersionNumber | None = None, dry_run: DryRun = False
    ) -> Dropped:
        """Remove a feature with its values and history, or one version that is not served.

        Raises FeatureInUseError if live workers run it. With ``dry_run`` nothing is removed.

        >>> (await store.catalog.drop("total_spend", dry_run=True)).online
        2
        """
        catalog = (await self._engine()).feature_catalog
        return await catalog.drop(feature_name(name), version, dry_run=dry_run)


class SyncCatalogVerbs(Blocking[CatalogVerbs]):
    """The blocking form of the catalog."""

    features = blocking(CatalogVerbs.features)
    versions = blocking(CatalogVerbs.versions)
    rename = blocking(CatalogVerbs.rename)
    drop = blocking(CatalogVerbs.drop)
