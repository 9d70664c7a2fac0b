"""The OpenAPI document is valid and complete, and its examples work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from headwater import FeatureStore
from headwater.http.app import create_app
from headwater.http.routes.docs_page import page_of
from headwater.http.routing import request_errors
from headwater.http.routing.openapi import LINKS, document, names_of, problem_help
from headwater.http.routing.problems import RULES
from headwater.http.routing.request_parsing import Upload, UploadedFile
from headwater.http.routing.route import signature_of
from headwater.model.problems import INTERNAL, TYPE_PREFIX
from headwater.settings.schema import Settings

ROUTES = {
    route.function.__name__: route
    for route in create_app(FeatureStore(settings=Settings())).typed_routes
}
DOCUMENT = document([*ROUTES.values()])
FILE = {"type": "string", "format": "binary"}


def operations() -> Iterator[dict[str, Any]]:
    for path in DOCUMENT["paths"].values():
        yield from path.values()


OPERATIONS = {each["operationId"]: each for each in operations()}


def test_the_document_is_valid() -> None:
    OPENAPI_31_VALIDATOR.validate(msgspec.json.decode(msgspec.json.encode(DOCUMENT)))


def test_every_route_has_an_operation_id_of_its_own() -> None:
    routes = create_app(FeatureStore(settings=Settings())).typed_routes
    assert len(ROUTES) == len(routes) == len(OPERATIONS)


def test_every_operation_has_a_described_tag() -> None:
    described = {tag["name"] for tag in DOCUMENT["tags"] if tag["description"]}
    for each in operations():
        assert set(each["tags"]) <= described
        assert each["summary"].endswith("."), each["operationId"]


@pytest.mark.parametrize("name", ROUTES)
def test_an_operation_names_the_scope_of_its_route(name: str) -> None:
    route, operation = ROUTES[name], OPERATIONS[name]
    assert operation["x-scope"] == route.scope
    needed = [] if route.scope == "any" else [route.scope]
    expected = [] if route.scope == "public" else [{"key": needed}, {"bearer": needed}]
    assert operation["security"] == expected


@pytest.mark.parametrize("name", ROUTES)
def test_every_parameter_has_a_description_and_an_example(name: str) -> None:
    for parameter in OPERATIONS[name]["parameters"]:
        assert parameter.get("description"), parameter["name"]
        assert parameter["schema"].get("examples"), parameter["name"]


def _contents(operation: dict[str, Any]) -> list[dict[str, Any]]:
    return list(operation["requestBody"]["content"].values())


@pytest.mark.parametrize(
    "name", [name for name, each in OPERATIONS.items() if "requestBody" in each]
)
def test_the_example_of_a_body_is_valid(name: str) -> None:
    signature = signature_of(ROUTES[name])
    if signature.body is UploadedFile:
        assert all(each["schema"] == FILE for each in _contents(OPERATIONS[name]))
        return
    kind = ROUTES[name].documents if signature.body is Upload else signature.body
    for content in _contents(OPERATIONS[name]):
        assert content["example"]
        msgspec.convert(content["example"], kind, strict=False)


def test_every_field_of_a_body_has_an_example() -> None:
    bodies = [each["requestBody"]["content"] for each in operations() if "requestBody" in each]
    for content in (each["application/json"] for each in bodies if "application/json" in each):
        schema = content["schema"]
        name = (schema.get("items", schema))["$ref"].rpartition("/")[2]
        example = content["example"]
        shown = example[0] if isinstance(example, list) else example
        assert shown.keys() == DOCUMENT["components"]["schemas"][name]["properties"].keys(), name


@pytest.mark.parametrize("name", LINKS)
def test_links_lead_to_parameters_of_operations(name: str) -> None:
    for target, parameters in LINKS[name].items():
        assert parameters.keys() <= {each["name"] for each in OPERATIONS[target]["parameters"]}
    (success,) = [OPERATIONS[name]["responses"][str(ROUTES[name].status)]]
    assert success["links"].keys() == LINKS[name].keys()


def test_every_problem_type_is_of_some_operation() -> None:
    """All but those of paths without a route, of other methods, and of closed connections."""
    documented = {
        each
        for operation in operations()
        for response in operation["responses"].values()
        for content in response.get("content", {}).values()
        for each in content["schema"].get("properties", {}).get("type", {}).get("enum", ())
    }
    elsewhere = (
        request_errors.NoRouteError,
        request_errors.MethodError,
        request_errors.DisconnectedError,
    )
    rules = [rule for kind, rule in RULES.items() if kind not in elsewhere]
    names = {name for rule in (*rules, INTERNAL) for name in names_of(rule)} - {"not-found"}
    assert {TYPE_PREFIX + name for name in names} <= documented


def test_every_problem_type_is_explained() -> None:
    """The page of problem types and the document need a text in ``problem_help.toml``."""
    names = {name for rule in (*RULES.values(), INTERNAL) for name in names_of(rule)}
    assert problem_help().keys() == names


@pytest.mark.parametrize("name", ROUTES)
def test_headers_of_responses_are_documented(name: str) -> None:
    responses = OPERATIONS[name]["responses"]
    assert all("X-Request-Id" in each["headers"] for each in responses.values())
    for status in ("429", "503"):
        assert "Retry-After" in responses[status]["headers"]
    assert ("304" in responses) is ROUTES[name].has_etag


def test_the_page_shows_every_route_without_scripts_and_other_hosts() -> None:
    page = page_of(DOCUMENT)
    for name, route in ROUTES.items():
        assert f'<article id="{name}">' in page
        assert route.path in page
    assert "<script" not in page
    assert " style=" not in page
    assert "//" not in page
    assert "curl &quot;$URL/v1/" in page
    assert "at least 1 characters" not in page
