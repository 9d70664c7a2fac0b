"""The verbs of a client for the versions of features."""

from __future__ import annotations

from headwater.client.server import Server
from headwater.declarations.feature_handles import FeatureRef, feature_name
from headwater.model.catalog import Dropped, RenameBody, VersionList, VersionSummary


class CatalogCalls:
    """``client.catalog``: the features that the store has values of, also undeclared ones."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def versions(self, name: FeatureRef) -> list[VersionSummary]:
        """Return the versions of a feature, the oldest first.

        >>> await client.catalog.versions("total_spend")
        [<VersionSummary feature='total_spend' version=1 state='active' type='float'>]
        """
        path = "/v1/features/{}/versions"
        return [*(await self._server.get(VersionList, path, feature_name(name))).versions]

    async def rename(self, old: FeatureRef, new: str) -> None:
        """Give a feature another name, with all its values; workers may be running.

        >>> await client.catalog.rename("total_spend", "spend")
        """
        path = "/v1/features/{}/rename"
        await self._server.tell(path, feature_name(old), body=RenameBody(new))

    async def drop(
        self, name: FeatureRef, *, version: int | None = None, dry_run: bool = False
    ) -> Dropped:
        """Remove a feature with its values and history, or one version that is not served.

        >>> (await client.catalog.drop("total_spend", dry_run=True)).online
        2
        """
        return await self._server.remove(
            Dropped, "/v1/features/{}", feature_name(name), version=version, dry_run=dry_run
        )
