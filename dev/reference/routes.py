"""The routes of the HTTP API, from its OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator

from dev.reference.tables import anchor, code, prose, table
from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.routing.openapi import document
from headwater.settings.schema import Settings


def routes() -> Iterator[str]:
    """Yield the table of all routes, each with a link to its section."""
    paths = document(create_app(FeatureStore(settings=Settings())).typed_routes)["paths"]
    named = (
        (f"{method.upper()} {path}", operation)
        for path, operations in paths.items()
        for method, operation in operations.items()
    )
    return table(
        ("route", "scope", "purpose"),
        (
            (f"[`{name}`]({anchor(name)})", code(route["x-scope"]), prose(route["summary"]))
            for name, route in named
        ),
    )
