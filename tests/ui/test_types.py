"""The web UI's types of requests and responses are the ones of the API."""

from dev.ui_types import TYPES, generated


def test_the_types_of_the_ui_are_those_of_the_openapi_document() -> None:
    assert TYPES.read_text() == generated(), f"run `make ui-types`, which writes {TYPES.name}"
