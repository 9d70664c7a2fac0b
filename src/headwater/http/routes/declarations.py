"""Routes that find things by their names, and that describe one declaration."""

from __future__ import annotations

import asyncio

import msgspec

from headwater.declarations.runtime import runtime_of
from headwater.http.routes.process_reports import ServerProcesses, all_reports, open_breakers
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.kinds import DeclaredName, SearchLimit, SearchText
from headwater.store.cards import CardKind, DeclarationCard, activity_of, card_of
from headwater.store.feature_store import FeatureStore
from headwater.store.finding import FoundPage, find


class DeclarationCards:
    """Finds declarations and stored data, and describes declarations."""

    def __init__(self, store: FeatureStore, processes: ServerProcesses | None) -> None:
        self._store = store
        self._processes = processes

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/search", "any", self.find_anything, applies_limits=True),
            Route(
                "GET",
                "/v1/declarations/{kind}/{name}",
                "read",
                self.read_declaration,
                applies_limits=True,
            ),
        ]

    async def find_anything(self, q: SearchText, limit: SearchLimit = 20) -> FoundPage:
        """Find declarations, entities, records and documents by name or id, the best first."""
        return await find(runtime_of(self._store), q, limit, current_caller())

    async def read_declaration(self, kind: CardKind, name: DeclaredName) -> DeclarationCard:
        """Read one declaration: code, options, dependencies, ages of values, last run, errors."""
        caller = current_caller()
        card = await asyncio.to_thread(card_of, self._store, kind, name, caller)
        activity = await activity_of(runtime_of(self._store), kind, name, caller)
        breaker_open = None
        if card.feature is not None and card.feature.triggers:
            breaker_open = name in open_breakers(await all_reports(self._processes))
        return msgspec.structs.replace(card, activity=activity, breaker_open=breaker_open)
