"""Routes that describe the API and the declared features."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from typing import Any

import msgspec

from headwater.http.routes.docs_page import page_of
from headwater.http.routing.responses import ApiResponse
from headwater.http.routing.route import Route
from headwater.model.callers import current_caller
from headwater.model.declarations import StoreListing
from headwater.store.feature_store import FeatureStore
from headwater.store.listings import declarations_of

HTML = "text/html; charset=utf-8"
_CSS = "text/css; charset=utf-8"
# The page has no script, and loads nothing but its own style sheet.
PAGE_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "referrer-policy": "no-referrer",
}


class Documentation:
    """Describes the API as OpenAPI and as a page, and lists the declarations.

    The page is public, because browsers send no key. It is the same in every installation.
    """

    def __init__(self, store: FeatureStore, describe: Callable[[], Mapping[str, Any]]) -> None:
        self._store = store
        # Encoding takes tens of milliseconds, and the page needs no key.
        self._document = cache(lambda: msgspec.json.encode(describe()))
        self._page = cache(lambda: page_of(describe()).encode())

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/api/store", "any", self.list_declarations, applies_limits=True),
            Route(
                "GET",
                "/openapi.json",
                "any",
                self.read_openapi,
                documents=dict[str, Any],
                has_etag=True,
                applies_limits=True,
            ),
            Route(
                "GET",
                "/docs",
                "public",
                self.read_docs,
                returns=HTML,
                documents=str,
                has_etag=True,
            ),
            Route(
                "GET",
                "/docs.css",
                "public",
                self.read_docs_style,
                returns=_CSS,
                documents=str,
                has_etag=True,
            ),
        ]

    async def list_declarations(self) -> StoreListing:
        """List the declarations that the key may see, and their dependency graph."""
        # The first time, reading the code of all functions takes long.
        return await asyncio.to_thread(declarations_of, self._store, current_caller())

    async def read_openapi(self) -> ApiResponse:
        """Read the OpenAPI document of all routes."""
        return ApiResponse(await asyncio.to_thread(self._document)).with_etag()

    async def read_docs(self) -> ApiResponse:
        """Read all routes as a page for people, which works offline."""
        page = await asyncio.to_thread(self._page)
        return ApiResponse(page, headers=PAGE_HEADERS, media_type=HTML).with_etag()

    async def read_docs_style(self) -> ApiResponse:
        """Read the style sheet of the page."""
        style = resources.files("headwater.http.routes").joinpath("docs.css").read_bytes()
        return ApiResponse(style, media_type=_CSS).with_etag()
