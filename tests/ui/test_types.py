"""The types and routes of the TypeScript client, which the web UI uses, are the ones of the API."""

from dev.ui_types import ROUTES, TYPES, described_api, generated, generated_routes


def test_the_types_and_routes_are_those_of_the_openapi_document() -> None:
    api = described_api()
    assert ROUTES.read_text() == generated_routes(api), f"`make ui-types` writes {ROUTES.name}"
    assert TYPES.read_text() == generated(api), f"run `make ui-types`, which writes {TYPES.name}"
