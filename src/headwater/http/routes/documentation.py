"""Routes that describe the API, its caller and the declared features."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache, partial
from importlib import resources
from importlib.metadata import version
from typing import Annotated, Any

import msgspec

from headwater.access.guard import THIS_MACHINE
from headwater.declarations.runtime import runtime_of
from headwater.errors import UnknownNameError
from headwater.http.routes.docs_page import page_of
from headwater.http.routes.process_reports import ServerProcesses, all_reports, open_breakers
from headwater.http.routing.openapi import document
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.callers import ALL_SCOPES, Caller, CallerReport, current_caller
from headwater.model.declarations import StoreListing
from headwater.model.kinds import DeclaredName, SearchLimit, SearchText
from headwater.store.cards import CardKind, DeclarationCard, activity_of, card_of
from headwater.store.feature_store import FeatureStore
from headwater.store.finding import FoundKind, FoundPage, find
from headwater.store.listings import declarations_of, publishable, visible_names

HTML = "text/html; charset=utf-8"
SearchedKind = Annotated[
    FoundKind,
    msgspec.Meta(description="Find only things of this kind.", examples=["entity_id"]),
]
_CSS = "text/css; charset=utf-8"
_VERSION = version("headwater")
# The page has no script, and loads nothing but its own style sheet.
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}


class Documentation:
    """Describes the API as OpenAPI and as a page, its callers, and the declarations.

    The page is public, because browsers send no key. It is the same in every installation.
    """

    def __init__(
        self, store: FeatureStore, others: Sequence[Route], processes: ServerProcesses | None
    ) -> None:
        """``others`` are the other routes of the server."""
        self._store = store
        self._processes = processes
        self._all = [*others, *self.routes()]
        # Encoding takes tens of milliseconds, and the page needs no key.
        self._document = cache(self._encoded_document)
        self._page = cache(lambda: page_of(document(self._all)).encode())

    def routes(self) -> list[Route]:
        get = partial(Route, "GET", applies_limits=True)
        page = partial(Route, "GET", scope="public", documents=str, has_etag=True)
        return [
            get("/v1/me", "any", self.describe_caller),
            get("/v1/search", "any", self.find_anything),
            get(
                "/v1/declarations/{kind}/{name}",
                "read",
                self.read_declaration,
                raises=(UnknownNameError,),
            ),
            get("/api/store", "any", self.list_declarations),
            get(
                "/openapi.json",
                "any",
                self.read_openapi,
                documents=dict[str, Any],
                has_etag=True,
            ),
            page("/docs", function=self.read_docs, returns=HTML),
            page("/docs.css", function=self.read_docs_style, returns=_CSS),
        ]

    async def describe_caller(self) -> CallerReport:
        """Read who the caller is, and which operations its key or token allows."""
        caller = current_caller() or THIS_MACHINE
        return CallerReport(
            name=caller.name,
            scopes=sorted(scope for scope in ALL_SCOPES if caller.may(scope)),
            limits=caller.limits,
            operations=[
                f"{route.method} {route.path}" for route in self._all if allows(caller, route)
            ],
            key_required=caller is not THIS_MACHINE,
            environment=self._store.settings.env,
            version=_VERSION,
        )

    async def find_anything(
        self, q: SearchText, limit: SearchLimit = 20, kind: SearchedKind | None = None
    ) -> FoundPage:
        """Find declarations, entities, records and documents by name or id, the best first."""
        return await find(runtime_of(self._store), q, limit, current_caller(), kind)

    async def read_declaration(self, kind: CardKind, name: DeclaredName) -> DeclarationCard:
        """Read one declaration: code, options, dependencies, ages of values, last run, errors."""
        caller = current_caller()
        card = await asyncio.to_thread(card_of, self._store, kind, name, caller)
        activity = await activity_of(runtime_of(self._store), kind, name, caller)
        breaker_open = None
        if card.feature is not None and card.feature.triggers:
            breaker_open = name in open_breakers(await all_reports(self._processes))
        return msgspec.structs.replace(card, activity=activity, breaker_open=breaker_open)

    async def list_declarations(self) -> StoreListing:
        """List the declarations that the key may see, and their dependency graph."""
        # The first time, reading the code of all functions takes long.
        return await asyncio.to_thread(declarations_of, self._store, current_caller())

    async def read_openapi(self) -> ApiResponse:
        """Read the OpenAPI document of all routes, and of the events that the key may publish.

        The schema `FeatureValues` describes the features that it may read.
        """
        registry, caller = runtime_of(self._store).registry, current_caller()
        events = tuple(publishable(registry, caller))
        features = tuple(visible_names(registry, caller)["feature"])
        return ApiResponse(await asyncio.to_thread(self._document, events, features)).with_etag()

    def _encoded_document(self, events: Sequence[str], features: Sequence[str]) -> bytes:
        """Return the document with the schemas of these types of events, and these features."""
        registry = runtime_of(self._store).registry
        described = [registry.features[name] for name in features]
        published = [registry.events[name] for name in events]
        return msgspec.json.encode(document(self._all, published, described))

    async def read_docs(self) -> ApiResponse:
        """Read all routes as a page for people, which works offline."""
        page = await asyncio.to_thread(self._page)
        return ApiResponse(page, headers=PAGE_HEADERS, media_type=HTML).with_etag()

    async def read_docs_style(self) -> ApiResponse:
        """Read the style sheet of the page."""
        style = resources.files("headwater.http.routes").joinpath("docs.css").read_bytes()
        return ApiResponse(style, media_type=_CSS).with_etag()


def allows(caller: Caller, route: Route) -> bool:
    """Return whether the scopes and limits of a caller allow a route."""
    if route.scope == "public":
        return True
    has_scope = route.scope == "any" or caller.may(route.scope)
    return has_scope and (caller.limits is None or route.applies_limits)
