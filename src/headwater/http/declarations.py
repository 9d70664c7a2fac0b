"""Routes about declarations and names: find something, and read the card of a declaration."""

from __future__ import annotations

from headwater.api.kinds import SearchLimit, SearchText
from headwater.core.callers import current_caller
from headwater.declarations.runtime import runtime_of
from headwater.http.routes import Route
from headwater.store.feature_store import FeatureStore
from headwater.store.finding import FoundPage, find


class DeclarationCards:
    """Finds declarations and stored things by their names."""

    def __init__(self, store: FeatureStore) -> None:
        self._store = store

    def routes(self) -> list[Route]:
        return [Route("GET", "/v1/search", "any", self.find_anything, applies_limits=True)]

    async def find_anything(self, q: SearchText, limit: SearchLimit = 20) -> FoundPage:
        """Find declarations, entities, records and documents by name or id, the best first."""
        return await find(runtime_of(self._store), q, limit, current_caller())
